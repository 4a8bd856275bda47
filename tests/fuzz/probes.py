"""Which of the planted faults a program could show: those to whose text it comes.

A probe stands before the statement of each fault (``mutants.py``) and says when that is run; of a header's, the text of
a kernel says it. Nothing else changes. So a campaign (`python -m tests.fuzz --reached FILE`) tells for each of its
programs which faults are worth planting under it, and `python -m tests.fuzz.mutants --reached FILE` runs just these.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tests.fuzz.mutants import MUTANTS, PACKAGE

REACHED: set[str] = set()
"""In a process that runs a program: the faults to whose text it has come."""

ALWAYS = frozenset(name for name, mutant in MUTANTS.items() if mutant.way)
"""Faults that only one way can see, which a campaign draws for few programs: all programs are run in that way."""

PROBE = "_a_probe"
"""What modules with probes call."""


def reach(name: str) -> None:
    REACHED.add(name)


def reach_text(text: str) -> None:
    """Notes the faults of headers that a kernel's text comes to."""
    REACHED.update(name for name, mutant in MUTANTS.items() if mutant.called and mutant.called in text)


def plant() -> None:
    """Before anything of the package is imported."""
    of_file: dict[str, dict[str, str]] = defaultdict(dict)
    for name, mutant in MUTANTS.items():
        if mutant.file.endswith(".py"):
            of_file[mutant.file][name] = mutant.old
    modules = {"jax_stitch." + f.removesuffix(".py").replace("/", "."): f for f in of_file}
    sys.meta_path.insert(0, _Finder({m: (PACKAGE / f, of_file[f]) for m, f in modules.items()}))


def probed(text: str, places: Mapping[str, str]) -> ast.Module:
    """A module's text with a probe before each statement that holds one of ``places``, which are texts by name."""
    tree = ast.parse(text)
    for name, place in places.items():
        line = text[: text.index(place)].count("\n") + 1
        found = _innermost(tree, line)
        if found is None:  # Outside of all functions: importing the module comes to it.
            body, at = tree.body, len(tree.body)
        else:
            body, at = found
        call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(name)], [])
        body.insert(at, ast.Expr(call))
    return ast.fix_missing_locations(tree)


def _innermost(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int] | None:
    """Where the innermost statement of a function at a line stands: in which body, and at which place of it."""
    found: list[tuple[int, list[ast.stmt], int]] = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(node, ast.Module | ast.ClassDef) or not isinstance(body, list):
                continue
            for at, statement in enumerate(body):
                first, last = getattr(statement, "lineno", line + 1), getattr(statement, "end_lineno", 0)
                if first <= line <= last:  # Not so of a probe, which has no place in the text yet.
                    found.append((last - first, body, at))
    if not found:
        return None
    _, body, at = min(found, key=lambda f: f[0])
    return body, at


class _Probed(importlib.machinery.SourceFileLoader):
    """Loads a module with its probes."""

    def __init__(self, name: str, path: str, places: Mapping[str, str]):
        super().__init__(name, path)
        self._places = places

    def get_code(self, fullname: str) -> CodeType:
        return compile(probed(Path(self.path).read_text(), self._places), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[PROBE] = reach
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, modules: Mapping[str, tuple[Path, Mapping[str, str]]]):
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        file, places = self._modules[name]
        return importlib.machinery.ModuleSpec(name, _Probed(name, str(file), places), origin=str(file))


# -- the file of a campaign


def line(seed: int, number: int, reached: Sequence[str] | None) -> str:
    """What the file has of a program; ``None`` where it did not get to say what it reached."""
    return json.dumps({"seed": seed, "number": number, "reached": None if reached is None else sorted(reached)}) + "\n"


def programs(file: Path) -> list[tuple[int, int]]:
    """The programs of a campaign's file, as seeds and numbers, in order."""
    return sorted((s["seed"], s["number"]) for s in map(json.loads, file.read_text().splitlines()))


def worth_planting(name: str, file: Path) -> list[tuple[int, int]]:
    """Those that a fault can show in: that come to its text, or did not get to say so."""
    said = map(json.loads, file.read_text().splitlines())
    return sorted(
        (s["seed"], s["number"]) for s in said if name in ALWAYS or s["reached"] is None or name in s["reached"]
    )
