"""The one analysis of accesses: what elements read, looked up once, and walks over it."""

from __future__ import annotations

import ast
import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest

import jax_stitch
from jax_stitch.analysis.accesses import COMPUTED, LOADED, View, accesses, walk
from jax_stitch.analysis.results import forget
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import const, var

F32 = TensorType("f32", (8,))


def graph_of(*operations: tuple[str, int, tuple[int, ...], dict[str, object]]) -> Graph:
    """A graph of one parameter of eight floats and operations: opcode, size, operands, attributes."""
    nodes = [Node(0, "parameter", F32, ())]
    for op, size, operands, attributes in operations:
        nodes.append(Node(len(nodes), op, TensorType("f32", (size,)), operands, attributes))
    return Graph("test", tuple(nodes), (0,), (len(nodes) - 1,))


def ladder(rungs: int) -> Graph:
    """A parameter added to itself over and over: there are ``2 ** rungs`` ways down."""
    return graph_of(*(("add", 8, (k, k), {}) for k in range(rungs)))


class Everything(View):
    """A kernel that computes all but the parameters."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.asked: Counter[object] = Counter()

    def kind(self, element):
        self.asked[element] += 1
        return LOADED if self.graph[element[0]].op == "parameter" else COMPUTED


def test_each_element_is_visited_once():
    graph = ladder(40)
    view = Everything(graph)
    at = (var("row", 8),)
    found = walk(view, [(graph.results[0], at)])
    assert len(found.computed) == 40 and list(found.loaded) == [(0, at)]
    assert set(view.asked.values()) == {1}


def test_what_an_element_reads_is_looked_up_once_for_all_who_ask():
    graph = ladder(3)
    element = graph.results[0], (var("row", 8),)
    first = accesses(graph).operands(element)
    assert accesses(graph).operands((graph.results[0], (var("row", 8),))) is first
    forget()
    assert accesses(graph).operands(element) is not first


@pytest.mark.usefixtures("only_new_objects")
def test_a_graph_that_nobody_holds_is_not_kept():
    graph = ladder(3)
    accesses(graph).operands((graph.results[0], (const(0),)))
    held = weakref.ref(graph)
    del graph
    gc.collect()
    assert held() is None


def test_an_element_first_met_under_a_condition_is_needed_where_another_asks_for_it_always():
    y, z, half = 1, 2, 3
    graph = graph_of(
        ("negate", 8, (0,), {}),
        ("concatenate", 16, (y, 0), {"dimensions": (0,)}),
        ("slice", 8, (z,), {"slice": ((4, 12, 1),)}),
        ("add", 8, (half, y), {}),
    )
    at = var("row", 8)
    found = walk(Everything(graph), [(graph.results[0], (at,))])
    always = {i: found.computed[i, index] for i, index in found.computed if index == (at,)}
    assert always[y] and always[half]
    (shifted,) = [e for e in found.computed if e[0] == y and e[1] != (at,)]
    assert not found.computed[shifted]


def test_nothing_else_asks_the_maps():
    """Whoever follows an index by hand would find out again what is known, and could differ."""
    root = Path(jax_stitch.__file__).parent
    own = {root / "analysis" / "maps.py", root / "analysis" / "accesses.py"}
    for path in sorted(set(root.rglob("*.py")) - own):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "analysis.maps" in text else ():  # To parse all of it takes seconds.
            if isinstance(node, ast.ImportFrom) and node.module == "jax_stitch.analysis.maps":
                assert "reads" not in {a.name for a in node.names}, path
