"""The map's import order is the code's: ARCHITECTURE.md, "Who may import whom"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx

ROOT = Path(__file__).resolve().parents[1]
TANGLED = frozenset({"rebuilt", "tune", "verify"})
"""Folders that import each other: "Known disorder" of the map. There must not be more of them."""


@dataclass(frozen=True)
class Import:
    """``module`` imports ``other``: when it is imported itself, or later; or for types only."""

    module: str
    other: str
    at_once: bool
    for_types: bool


def modules() -> dict[str, Path]:
    found = {}
    for package in ("hlo_parser", "jax_stitch"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> Iterator[Import]:
    known = modules()
    for module, path in known.items():
        tree = ast.parse(path.read_text())
        types, later = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                types.update(ast.walk(node))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                later.update(ast.walk(node))
        for node in ast.walk(tree):
            for name in names(node, module, path):
                other = name if name in known else name.rpartition(".")[0]
                if other in known and other != module:
                    yield Import(module, other, node not in later and node not in types, node in types)


def names(node: ast.AST, module: str, path: Path) -> Iterator[str]:
    """The full names that an import statement takes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        base = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        parent = base[: len(base) - node.level + 1] if node.level else []
        whole = ".".join([*parent, *([node.module] if node.module else [])])
        yield from (f"{whole}.{alias.name}" for alias in node.names)


def folder(module: str) -> str | None:
    """The stage or room a module is in; None for the files at the top."""
    first, *rest = module.split(".")
    if first == "hlo_parser":
        return first
    return rest[0] if rest and (ROOT / "jax_stitch" / rest[0]).is_dir() else None


def stated() -> dict[str, tuple[set[str], set[str]]]:
    """What the map says that each folder imports, and imports for types only, in its order."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Who may import whom")[2]
    block = text.split("```")[1]
    found = {}
    for line in block.strip().splitlines():
        name, _, rest = line.partition("->")
        real, _, types = rest.partition("; types:")
        found[name.strip()] = set(re.findall(r"\w+", real)), set(re.findall(r"\w+", types))
    return found


def actual() -> dict[str, tuple[set[str], set[str]]]:
    found: dict[str, tuple[set[str], set[str]]] = {}
    for one in imports():
        here, there = folder(one.module), folder(one.other)
        if here is None or there is None or here == there:
            continue
        found.setdefault(here, (set(), set()))[one.for_types].add(there)
    return {name: (real, types - real) for name, (real, types) in found.items()}


def test_the_map_says_what_is_imported() -> None:
    code, said = actual(), stated()
    rooms = {f for m in modules() if (f := folder(m)) is not None}
    assert said.keys() == rooms
    wrong = {name: (code.get(name, (set(), set())), said[name]) for name in rooms}
    wrong = {name: both for name, both in wrong.items() if both[0] != both[1]}
    assert not wrong, f"(imported, stated) of folders: {wrong}"


def test_no_folder_imports_one_that_comes_later() -> None:
    order = list(stated())
    for name, (real, _) in stated().items():
        for other in real:
            upward = order.index(other) > order.index(name)
            assert not upward or {name, other} <= TANGLED, f"{name} imports {other}, which comes after it"


def test_no_modules_import_each_other() -> None:
    graph = networkx.DiGraph((one.module, one.other) for one in imports() if one.at_once)
    circles = [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles
