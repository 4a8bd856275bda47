"""The map is the code's: ARCHITECTURE.md, "Who may import whom" and "What rooms show". No file is too long to read."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.xdist_group("import_order")


@dataclass(frozen=True)
class Import:
    """``module`` imports ``other``: when it is imported itself, or later; or for types only."""

    module: str
    other: str
    at_once: bool
    for_types: bool


@cache
def tree_of(path: Path) -> ast.Module:
    """All tests look at the same files: each is parsed once."""
    return ast.parse(path.read_text())


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All that are inside: expressions have none, and nobody looks for any there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)


@cache
def modules() -> dict[str, Path]:
    found = {}
    for package in ("hlo_parser", "jax_stitch"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    return tuple(one for module, path in modules().items() for one in imports_of(module, path))


def imports_of(module: str, path: Path) -> Iterator[Import]:
    known = modules()
    types, later = set(), set()
    for node in statements(tree_of(path)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            types.update(statements(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            later.update(statements(node))
    for node in statements(tree_of(path)):
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
    """The innermost folder of the map that a module is in; None for the files at the top."""
    inner = module.removeprefix("jax_stitch.")
    return max((name for name in stated() if f"{inner}.".startswith(f"{name}.")), key=len, default=None)


ROOMS = tuple(path.name for path in (ROOT / "jax_stitch").iterdir() if (path / "__init__.py").is_file())


def room(name: str) -> str:
    """The folder of the package that a folder of the map is in."""
    return name.partition(".")[0]


@cache
def stated() -> dict[str, tuple[set[str], set[str]]]:
    """What the map says that each folder imports, and imports for types only, in its order."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Who may import whom")[2]
    block = text.split("```")[1]
    found = {}
    for line in block.strip().splitlines():
        name, _, rest = line.partition("->")
        real, _, types = rest.partition("; types:")
        found[name.strip()] = set(re.findall(r"[\w.]+", real)), set(re.findall(r"[\w.]+", types))
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
    assert {room(name) for name in said} == {*ROOMS, "hlo_parser"}
    wrong = {name: (code.get(name, (set(), set())), said[name]) for name in said}
    wrong = {name: both for name, both in wrong.items() if both[0] != both[1]}
    assert not wrong, f"(imported, stated) of folders: {wrong}"


def test_no_folder_imports_one_that_comes_later() -> None:
    order = list(stated())
    for name, (real, _) in stated().items():
        for other in real:
            assert order.index(other) < order.index(name), f"{name} imports {other}, which comes after it"


def test_no_rooms_import_each_other() -> None:
    """Rooms are layers: folders of one room may import each other's, but no two rooms do."""
    graph = networkx.DiGraph()
    for name, (real, _) in stated().items():
        graph.add_edges_from((room(name), room(other)) for other in real if room(name) != room(other))
    assert networkx.is_directed_acyclic_graph(graph)


def shown() -> dict[str, set[str]]:
    """The modules that each folder shows."""
    block = (ROOT / "ARCHITECTURE.md").read_text().partition("## What rooms show")[2].split("```")[1]
    lines = (line.partition(":") for line in block.strip().splitlines())
    return {name.strip(): set(re.findall(r"[\w.]+", rest)) for name, _, rest in lines}


def test_private_modules_are_imported_by_their_folder_alone() -> None:
    """And what the map shows is used: what nobody imports any more becomes private."""
    said, used = shown(), dict[str, set[str]]()
    for one in imports():
        here, there = folder(one.module), folder(one.other)
        if there is None or here == there:
            continue
        inner = one.other.removeprefix("jax_stitch.").removeprefix(there).removeprefix(".")
        if inner:
            assert inner in said.get(there, ()), f"{one.module} imports {one.other}, which is private"
            used.setdefault(there, set()).add(inner)
    assert said == used


MOST_LINES, MOST_OF_A_FUNCTION, MOST_PARAMETERS = 400, 60, 8
MOST_MODULES, MOST_ROOMS = 30, 17


def test_folders_can_be_overlooked() -> None:
    count = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert not {str(folder.relative_to(ROOT)): n for folder, n in count.items() if n > MOST_MODULES}
    assert len(ROOMS) <= MOST_ROOMS


@pytest.mark.every_case
@pytest.mark.parametrize("package", ["hlo_parser", "jax_stitch", "bench", "tests"])
def test_files_and_functions_can_be_read_at_once(package: str) -> None:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        count = path.read_text().count("\n")
        where = path.relative_to(ROOT)
        if count > MOST_LINES:
            found.append(f"{where}: {count} lines")
        for node in statements(tree_of(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or 0) - node.lineno + 1 - documentation(node)
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(p.arg not in ("self", "cls") for p in parameters)
            if lines > MOST_OF_A_FUNCTION or count > MOST_PARAMETERS:
                found.append(f"{where}:{node.lineno} {node.name}: {lines} lines, {count} parameters")
    assert not found, "\n".join(found)


def documentation(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's docstring."""
    first = node.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return (first.end_lineno or 0) - first.lineno + 1 if is_text else 0


def test_no_modules_import_each_other() -> None:
    graph = networkx.DiGraph((one.module, one.other) for one in imports() if one.at_once)
    circles = [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles
