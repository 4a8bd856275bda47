"""Which inputs a program has no more use for after a kernel: an input that is given up too early costs a copy, one that
may come to be another input's array a wrong result.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jax_stitch.frontend.replay import Segment, StitchedGraph, spent
from jax_stitch.graph import Graph
from jax_stitch.graph.rewrites.donated import settled
from tests.fusion import forced

TWO = "%x = f32[8]{0} parameter(0)\n%y = f32[8]{0} parameter(1)\n"

Pairs = set[tuple[str, str, tuple[str, ...]]]


def pairs(body: str, inside: str, homes: Mapping[int, int]) -> Pairs:
    """(input, output, twins) of the segment of the nodes named ``inside``."""
    graph = forced.graph_from(body)
    by_name = {n.name: n.id for n in graph.nodes}
    nodes = frozenset(by_name[name] for name in inside.split())
    inputs = tuple(dict.fromkeys(o for i in sorted(nodes) for o in graph[i].operands if o not in nodes))
    outputs = tuple(i for i in sorted(nodes) if i in graph.results or any(u not in nodes for u in graph.users[i]))
    made = Segment(nodes, inputs, outputs, lambda arrays: arrays)
    found = spent(StitchedGraph(graph, (made,)), homes).get(made, ())
    names = {i: n for n, i in by_name.items()}
    return {(names[inputs[s.input]], names[outputs[s.output]], tuple(names[inputs[t]] for t in s.twins)) for s in found}


CASES: dict[str, tuple[str, str, dict[int, int], Pairs]] = {
    "donated": (f"{TWO}ROOT %a = f32[8]{{0}} add(%x, %y)", "a", {0: 0}, {("x", "a", ())}),
    "not donated": (f"{TWO}ROOT %a = f32[8]{{0}} add(%x, %y)", "a", {}, set()),
    "returned too": (
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\nROOT %t = (f32[8]{{0}}, f32[8]{{0}}) tuple(%a, %x)",
        "a",
        {0: 0},
        set(),
    ),
    "its memory is another result's": (
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\n%b = f32[8]{{0}} multiply(%y, %y)\n"
        "ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)",
        "a",
        {0: 1},
        set(),
    ),
    "read by what may come after": (
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\n%b = f32[8]{{0}} multiply(%x, %y)\n"
        "ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)",
        "a",
        {0: 0},
        set(),
    ),
    "read by what XLA computes in two products, of which one comes after": (
        "%x = f32[8,8]{1,0} parameter(0)\n%y = f32[8,8]{1,0} parameter(1)\n%b = f32[8,8]{1,0} negate(%x)\n"
        "%d = f32[8,8]{1,0} dot(%b, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "%a = f32[8,8]{1,0} add(%x, %d)\n"
        "%e = f32[8,8]{1,0} dot(%b, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT %t = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(%a, %e)",
        "a",
        {0: 0},
        set(),
    ),
    "read by what XLA computes in a product that comes before": (
        "%x = f32[8,8]{1,0} parameter(0)\n%y = f32[8,8]{1,0} parameter(1)\n%b = f32[8,8]{1,0} negate(%x)\n"
        "%d = f32[8,8]{1,0} dot(%b, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT %a = f32[8,8]{1,0} add(%x, %d)",
        "a",
        {0: 0},
        {("x", "a", ("d",))},
    ),
    "read by what comes before": (
        f"{TWO}%b = f32[8]{{0}} multiply(%x, %y)\nROOT %a = f32[8]{{0}} add(%x, %b)",
        "a",
        {0: 0},
        {("x", "a", ("b",))},
    ),
    "a view of it is read after": (
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\n%v = f32[2,4]{{1,0}} reshape(%x)\n%b = f32[2,4]{{1,0}} multiply(%v, %v)\n"
        "ROOT %t = (f32[8]{0}, f32[2,4]{1,0}) tuple(%a, %b)",
        "a",
        {0: 0},
        set(),
    ),
    "given twice": (
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\nROOT %t = (f32[8]{{0}}, f32[8]{{0}}) tuple(%a, %a)",
        "a",
        {0: 0},
        set(),
    ),
    "on the way": (
        "%x = f32[8,8]{1,0} parameter(0)\n%d = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\nROOT %a = f32[8,8]{1,0} add(%d, %x)",
        "a",
        {},
        {("d", "a", ("x",))},
    ),
    "on the way, and returned": (
        "%x = f32[8,8]{1,0} parameter(0)\n%d = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n%a = f32[8,8]{1,0} add(%d, %x)\n"
        "ROOT %t = (f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(%a, %d)",
        "a",
        {},
        set(),
    ),
    "a constant": (
        "%x = f32[8]{0} parameter(0)\n%c = s32[8]{0} iota(), iota_dimension=0\n"
        "%n = s32[8]{0} convert(%x)\nROOT %a = s32[8]{0} add(%c, %n)",
        "n a",
        {},
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_spent_inputs(name: str) -> None:
    body, inside, homes, wanted = CASES[name]
    assert pairs(body, inside, homes) == wanted


WAITS: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "for another reader": ("%b = f32[8]{0} multiply(%x, %y)", "%a, %b", ("b",)),
    "for the last of several": (
        "%b = f32[8]{0} multiply(%x, %y)\n%c = f32[4]{0} slice(%b), slice={[0:4]}\n%d = f32[4]{0} negate(%c)",
        "%a, %d",
        ("d",),
    ),
    "for readers apart": ("%b = f32[8]{0} multiply(%x, %y)\n%d = f32[8]{0} negate(%x)", "%a, %b, %d", ("b", "d")),
    "not for one that reads its result": ("%b = f32[8]{0} multiply(%x, %a)", "%a, %b", None),
    "not for what is returned": ("%b = f32[8]{0} multiply(%y, %y)", "%a, %x", None),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_kernel_can_wait_for_those_that_read_what_it_overwrites(name: str) -> None:
    others, results, wanted = WAITS[name]
    types = ", ".join("f32[4]{0}" if r == "%d" and "slice" in others else "f32[8]{0}" for r in results.split(", "))
    graph = forced.graph_from(f"{TWO}%a = f32[8]{{0}} add(%x, %y)\n{others}\nROOT %t = ({types}) tuple({results})")
    at = {n.name: n.id for n in graph.nodes}
    made = Segment(frozenset({at["a"]}), (at["x"], at["y"]), (at["a"],), lambda arrays: arrays)
    found = spent(StitchedGraph(graph, (made,)), {0: 0}, may_wait=True).get(made, ())
    assert [s.after for s in found] == ([] if wanted is None else [tuple(at[n] for n in wanted)])


SCATTER = (
    "scatter(%{into}, %i, %{updates}), update_window_dims={{}}, inserted_window_dims={{0}}, "
    "scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=%last"
)
LAST = "%last (p: f32[], q: f32[]) -> f32[] {\n%p = f32[] parameter(0)\nROOT %q = f32[] parameter(1)\n}\n"
PARTS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "a part": (f"ROOT %s = f32[8]{{0}} {SCATTER.format(into='a', updates='g')}", ("g",)),
    "what is made of it": (
        f"%m = f32[2]{{0}} multiply(%g, %g)\nROOT %s = f32[8]{{0}} {SCATTER.format(into='a', updates='m')}",
        ("m",),
    ),
    "in another shape": (
        "%r = f32[1,2]{1,0} reshape(%g)\n%n = f32[1,2]{1,0} negate(%r)\n%m = f32[2]{0} reshape(%n)\n"
        f"ROOT %s = f32[8]{{0}} {SCATTER.format(into='a', updates='m')}",
        ("n",),
    ),
    "twice": (
        f"%m = f32[2]{{0}} exponential(%g)\n%s = f32[8]{{0}} {SCATTER.format(into='a', updates='g')}\n"
        f"ROOT %z = f32[8]{{0}} {SCATTER.format(into='s', updates='m')}",
        ("m",),
    ),
    "with the result": (
        "%w = f32[2]{0} slice(%a), slice={[0:2]}\n%m = f32[2]{0} multiply(%g, %w)\n"
        f"ROOT %s = f32[8]{{0}} {SCATTER.format(into='a', updates='m')}",
        None,
    ),
}


@pytest.mark.parametrize("on_a_host", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_what_is_read_for_a_scatter_into_the_result_is_waited_for(name: str, on_a_host: bool) -> None:
    """A step of Adam for few rows of a donated table kept a copy of it: the old rows were taken to be read in the
    kernel of the scatter, into which XLA:CPU fuses nothing."""
    others, wanted = PARTS[name]
    graph = forced.graph_from(
        f"{TWO}%i = s32[2,1]{{1,0}} parameter(2)\n%a = f32[8]{{0}} add(%x, %y)\n"
        f"%g = f32[2]{{0}} slice(%x), slice={{[3:5]}}\n{others}",
        LAST,
    )
    at = {n.name: n.id for n in graph.nodes}
    made = Segment(frozenset({at["a"]}), (at["x"], at["y"]), (at["a"],), lambda arrays: arrays)
    found = spent(StitchedGraph(graph, (made,)), {0: 0}, may_wait=on_a_host).get(made, ())
    waits = on_a_host and wanted is not None
    assert [s.after for s in found] == ([tuple(at[n] for n in wanted or ())] if waits else [])


def test_two_kernels_do_not_wait_for_each_other() -> None:
    """Each reads what the other overwrites: one of them has to be given a copy."""
    graph = forced.graph_from(
        f"{TWO}%a = f32[8]{{0}} add(%x, %y)\n%b = f32[8]{{0}} multiply(%x, %y)\n"
        "ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)"
    )
    at = {n.name: n.id for n in graph.nodes}
    read = at["x"], at["y"]
    segments = [Segment(frozenset({at[n]}), read, (at[n],), lambda arrays: arrays) for n in "ab"]
    found = spent(StitchedGraph(graph, tuple(segments)), {0: 0, 1: 1}, may_wait=True)
    assert sum(len(found.get(s, ())) for s in segments) == 1


def test_what_is_changed_in_part_is_where_it_was() -> None:
    """A kernel's output that only a scatter goes on with is in the memory of the result."""
    graph = forced.graph_from(
        f"{TWO}%i = s32[2,1]{{1,0}} parameter(2)\n%u = f32[2]{{0}} parameter(3)\n%a = f32[8]{{0}} add(%x, %y)\n"
        "ROOT %s = f32[8]{0} scatter(%a, %i, %u), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%last",
        LAST,
    )
    at = {n.name: n.id for n in graph.nodes}
    made = Segment(frozenset({at["a"]}), (at["x"], at["y"]), (at["a"],), lambda arrays: arrays)
    (found,) = spent(StitchedGraph(graph, (made,)), {0: 0})[made]
    assert (found.input, found.output) == (0, 0)


BODY = """
%body (c: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %c = (f32[8]{0}, f32[8]{0}) parameter(0)
  %a = f32[8]{0} get-tuple-element(%c), index=0
  %b = f32[8]{0} get-tuple-element(%c), index=1
  %next_a = f32[8]{0} add(%a, %b)
  %next_b = f32[8]{0} multiply(%b, %b)
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(RESULTS)
}
%condition (d: (f32[8], f32[8])) -> pred[] {
  %d = (f32[8]{0}, f32[8]{0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}
"""


@pytest.mark.parametrize(
    ("first", "results", "wanted"),
    [
        ("%x, %y", "%next_a, %next_b", {("a", ())}),
        ("%x, %x", "%next_a, %next_b", {("a", ("b",))}),  # One array, in what is made of the first step.
        ("%x, %y", "%next_a, %next_a", set()),  # One array from the second step on; and it is copied.
        ("%x, %y", "%next_b, %next_a", set()),  # They change places.
        ("%x, %y", "%next_a, %b", {("a", ())}),
    ],
)
def test_what_a_loop_carries(first: str, results: str, wanted: set[tuple[str, tuple[str, ...]]]) -> None:
    """Two carries that begin and go on as two arrays are two for ever; others may be one."""
    kind = "(f32[8]{0}, f32[8]{0})"
    graph = forced.graph_from(
        f"{TWO}%init = {kind} tuple({first})\nROOT %w = {kind} while(%init), condition=%condition, body=%body",
        BODY.replace("RESULTS", results),
    )
    (loop,) = [n for n in graph.nodes if n.op == "while"]
    body = loop.graphs["body"]
    by_name = {n.name: n.id for n in body.nodes}
    a, b = body.parameters
    made = Segment(frozenset({by_name["next_a"]}), (a, b), (by_name["next_a"],), lambda arrays: arrays)
    apart = {0: 0, 1: 1}
    found = spent(StitchedGraph(graph, (), {(loop.id, "body"): StitchedGraph(body, (made,))}), apart).get(made, ())
    assert {("ab"[s.input], tuple("ab"[t] for t in s.twins)) for s in found} == wanted


def test_a_small_count_is_updated_once() -> None:
    """Each kernel that computes it anew reads the old one, which then cannot be overwritten."""
    body = (
        "%n = s32[] parameter(0)\n%x = f32[8]{0} parameter(1)\n%one = s32[] constant(1)\n%next = s32[] add(%n, %one)\n"
        "%f = f32[] convert(%next)\n%b = f32[8]{0} broadcast(%f), dimensions={}\n%a = f32[8]{0} multiply(%x, %b)\n"
        "ROOT %t = (s32[], f32[8]{0}) tuple(%next, %a)"
    )
    graph: Graph = forced.graph_from(body)
    assert settled(graph, {}) is graph
    found = settled(graph, {0: 0})
    (barrier,) = [n for n in found.nodes if n.op == "opt-barrier"]
    assert found.results[0] == barrier.id
    (convert,) = [n for n in found.nodes if n.op == "convert"]
    assert convert.operands == (barrier.id,)
    assert settled(graph, {1: 1}) is graph  # An array is no count.
