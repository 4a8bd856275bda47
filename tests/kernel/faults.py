"""Faults planted into kernels: each takes a good kernel and gives a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr, Var
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.threads import Reach, Space, Who
from jax_stitch.kernel.walk import renamed
from jax_stitch.util.values import replace

Change = Callable[[Any], Any]
"""A node's replacement; a tuple of several, none to take it out."""


@dataclass
class _Edit:
    matches: Callable[[Any], bool]
    change: Change
    left: int
    """The number of the match that is changed, counted down."""

    def node(self, node: Any) -> Any:
        if isinstance(node, tuple):
            found: list[Any] = []
            for item in node:
                made = self.node(item)
                found += made if isinstance(made, tuple) and not isinstance(item, tuple) else [made]
            return tuple(found)
        if not isinstance(node, Struct):
            return node
        if self.matches(node):
            self.left -= 1
            if self.left == -1:
                return self.change(node)
        return replace(node, **{name: self.node(getattr(node, name)) for name in node.__struct_fields__})


def edited(kernel: Kernel, matches: Callable[[Any], bool], change: Change, number: int = 0) -> Kernel:
    """The kernel with one matching node changed."""
    edit = _Edit(matches, change, number)
    found = edit.node(kernel)
    assert edit.left < 0, "nothing matches"
    assert found != kernel, "nothing is changed"
    return found


def is_a(kind: type[Any], **values: Any) -> Callable[[Any], bool]:
    return lambda node: isinstance(node, kind) and all(getattr(node, k) == v for k, v in values.items())


REDUCTION, SORT = (is_a(st.Apply, intrinsic=name) for name in ("reduce", "sort"))


def loads(node: Any) -> bool:
    return isinstance(node, st.Define) and isinstance(node.value, ex.Element)


def stores(node: Any) -> bool:
    return isinstance(node, st.Assign) and isinstance(node.target, ex.Element)


def moved_load(by: int) -> Change:
    return lambda s: replace(s, value=replace(s.value, at=s.value.at + by))


def moved_store(by: int) -> Change:
    return lambda s: replace(s, target=replace(s.target, at=s.target.at + by))


def without_row(s: st.Assign) -> st.Assign:
    """Every row writes where the first does."""
    assert isinstance(s.target, ex.Element)
    at = s.target.at
    terms = tuple(t for t in at.terms if "row" not in str(t[0]))
    high = sum(c * a.high for a, c in terms)
    return replace(s, target=replace(s.target, at=Expr(terms, at.offset, 0, high)))


def once_more(s: Any) -> Any:
    return (s, s)


def out(_: Any) -> Any:
    return ()


def in_rows(s: Any) -> Any:
    return st.Rows((s,))


def under_condition(s: Any) -> Any:
    """Done by some threads alone."""
    row = ex.Test(_variable("row", 0, 1 << 20), None, 3)
    return st.Choice((st.Case((row,), (s,)),))


def _variable(name: str, low: int, high: int) -> Expr:
    return Expr(((Var(name, low, high), 1),), 0, low, high)


def last_first(s: st.Stretch) -> st.Stretch:
    """What uses a value, before it."""
    return replace(s, body=(*s.body[1:], s.body[0]))


def typed(dtype: str) -> Change:
    return lambda s: replace(s, dtype=dtype)


def other_operand(s: st.Define) -> st.Define:
    """An operand of another type."""
    assert isinstance(s.value, ex.Op)
    operands = (*s.value.operands[:-1], ex.Literal("s32", 1))
    return replace(s, value=replace(s.value, operands=operands))


def computes(opcode: str) -> Callable[[Any], bool]:
    return lambda n: isinstance(n, st.Define) and isinstance(n.value, ex.Op) and n.value.opcode == opcode


def wider_tests(case: st.Case) -> st.Case:
    tests = tuple(replace(t, high=None if t.high is None else t.high + 1, low=t.low and t.low - 1) for t in case.tests)
    return replace(case, tests=tests)


def fewer_blocks(call: model.Call) -> model.Call:
    return replace(call, last=call.last - 1)


def one_phase(kernel: Kernel) -> Kernel:
    assert len(kernel.phases) > 1
    return replace(kernel, phases=(model.Phase(tuple(c for p in kernel.phases for c in p.calls)),))


@dataclass(frozen=True)
class Planted:
    """A fault: the program whose kernel it is planted in, and how."""

    program: str
    plant: Callable[[Kernel], Kernel]
    device: str = "h200"


def _by(matches: Callable[[Any], bool], change: Change, number: int = 0) -> Callable[[Kernel], Kernel]:
    return lambda kernel: edited(kernel, matches, change, number)


def grown(name: str, by: int) -> Change:
    return lambda s: replace(s, **{name: getattr(s, name) + by})


def resized(axis: str, by: int) -> Change:
    """A loop of more iterations."""

    def change(s: Any) -> Any:
        old = getattr(s, axis)
        return replace(s, **{axis: replace(old, extent=old.extent + by)})

    return change


def with_target(**values: Any) -> Change:
    return lambda s: replace(s, target=replace(s.target, **values))


def longer(s: st.Pass) -> st.Pass:
    return replace(s, run=replace(s.run, extent=1), place=replace(s.place, extent=s.size + 1))


def unconditional(s: st.Choice) -> st.Choice:
    return replace(s, cases=(replace(s.cases[0], tests=()),))


def every_other(s: st.Assign) -> st.Assign:
    assert isinstance(s.target, ex.Element)
    return replace(s, target=replace(s.target, at=s.target.at * 2))


def with_other_variable(s: st.Define) -> st.Define:
    assert isinstance(s.value, ex.Element)
    return replace(s, value=replace(s.value, at=s.value.at + _variable("other", 0, 1)))


def of_whole_number(c: model.Combiner) -> model.Combiner:
    return replace(c, results=(ex.Literal("s32", 0),))


def backward(name: str) -> Change:
    """A field's values in the other order."""
    return lambda s: replace(s, **{name: getattr(s, name)[::-1]})


def fewer_places(s: st.Apply) -> st.Apply:
    return replace(s, sizes=(s.sizes[0] - 1, *s.sizes[1:]))


def given(**values: Any) -> Change:
    return lambda s: replace(s, **values)


def with_barrier(s: Any) -> Any:
    return (s, st.Barrier())


def along_rows(s: st.Define) -> st.Define:
    """The row and the place change places in the index of a load."""
    assert isinstance(s.value, ex.Element)
    names = {"row": "j", "j": "row"}
    at = renamed(s.value.at, lambda v: Var(names.get(v.name, v.name), v.low, v.high))
    return replace(s, value=replace(s.value, at=at))


def of_whole_pass(s: st.Define) -> st.Define:
    """An index that counts the places of all runs of a pass, which goes in runs."""
    assert isinstance(s.value, ex.Element)
    at = renamed(s.value.at, lambda v: Var(v.name, v.low, 2 * v.high + 1) if v.name == "j" else v)
    return replace(s, value=replace(s.value, at=at))


def given_trips(more: int) -> Change:
    return lambda s: replace(s, stops=tuple(stop + more for stop in s.stops))


AXES: dict[str, Planted] = {
    "a sort along another axis": Planted("square sort", _by(loads, along_rows)),
    "a scan along another axis": Planted("square scan", _by(loads, along_rows)),
    "a reduction along another axis": Planted("square sum", _by(loads, along_rows)),
    "a scan the other way": Planted("scan", _by(is_a(st.ScanPass), given(backward=True))),
    "a scan of fewer places": Planted("scan", _by(is_a(st.ScanPass), resized("place", -1))),
    "a reduction of one place fewer": Planted("standardised", _by(is_a(st.Pass), resized("place", -1))),
    "an inner reduction of one element fewer": Planted("inner reduction", _by(is_a(st.For), given_trips(-1))),
    "a reduction in memory order of one element fewer": Planted(
        "in memory order", _by(is_a(st.Pass), resized("place", -1)), "cpu"
    ),
    "the neighbour of an element": Planted("padded", _by(loads, moved_load(-1))),
}
"""Faults that only HLO tells from what is meant."""

PLANTED: dict[str, Planted] = {
    "an index one past the end": Planted("standardised", _by(loads, moved_load(1))),
    "an index before the start": Planted("standardised", _by(loads, moved_load(-1))),
    "an element written past the end": Planted("standardised", _by(stores, moved_store(1))),
    "places of more than a run": Planted("in runs", _by(loads, of_whole_pass, 2), "cpu"),
    "a pass one place too long": Planted("standardised", _by(is_a(st.Pass), longer)),
    "a table one too short": Planted("a table", _by(is_a(model.Table), given(values=(ex.Literal("f32", 0),)))),
    "a start beyond the last": Planted("gathered", _by(is_a(ex.Start), grown("high", 1))),
    "a condition too wide": Planted("padded", _by(is_a(st.Case), wider_tests)),
    "a condition left out": Planted("padded", _by(is_a(st.Choice), unconditional)),
    "an array smaller than the pass": Planted("sort", _by(is_a(st.Allocate, space=Space.SHARED), grown("size", -1))),
    "a loop one step too long": Planted("discounted_rewards", _by(is_a(st.For), given_trips(1))),
    "a product one step too long": Planted("lstm", _by(is_a(st.Steps), resized("term", 1))),
    "one item too many": Planted("lstm", _by(is_a(st.Items), resized("lane", 1))),
    "a smaller buffer than the part's": Planted("gathered", _by(is_a(model.Call), backward("arguments"))),
    "a buffer of another type": Planted("standardised", _by(is_a(model.Buffer), typed("f64"))),
    "shared memory past its end": Planted("sort", _by(is_a(model.Launch), grown("shared_bytes", -64))),
    "two arrays in one place": Planted("sort", _by(is_a(st.Allocate, space=Space.SHARED), given(offset=0), 1)),
    "too few bits for an index": Planted("large", _by(is_a(model.Part), given(wide=False))),
    "no barrier before a sort": Planted("sort", _by(is_a(st.Barrier), out)),
    "no barrier after a sort": Planted("sort", _by(is_a(st.Barrier), out, 1)),
    "no barrier after an inner reduction": Planted("inner reduction", _by(is_a(st.Barrier), out)),
    "no barrier before the first step": Planted("lstm", _by(is_a(st.Barrier), out)),
    "no barrier after a product": Planted("lstm", _by(is_a(st.Barrier), out, 1)),
    "no barrier at the end of a step": Planted("gru", _by(is_a(st.Barrier), out, 2)),
    "a barrier that some rows come to": Planted("sort", _by(is_a(st.Barrier), in_rows)),
    "a barrier under a condition": Planted("sort", _by(is_a(st.Barrier), under_condition, 1)),
    "a reduction under a condition": Planted("standardised", _by(REDUCTION, under_condition)),
    "a sort that some rows come to": Planted("sort", _by(SORT, in_rows)),
    "a barrier in a loop of each row": Planted("lotka_volterra_adaptive", _by(is_a(st.Rows), with_barrier, 1)),
    "a value used before it is defined": Planted("standardised", _by(is_a(st.Stretch), last_first)),
    "a value that is not defined": Planted("standardised", _by(loads, out)),
    "a row's value read before its reduction": Planted("standardised", _by(REDUCTION, out)),
    "an accumulator that is not declared": Planted("standardised", _by(is_a(st.Allocate, space=Space.LANE), out)),
    "an unknown combiner": Planted("standardised", _by(REDUCTION, given(function="Combine_none"))),
    "an unknown variable in an index": Planted("standardised", _by(loads, with_other_variable)),
    "an element written twice": Planted("standardised", _by(stores, once_more)),
    "an element not written": Planted("standardised", _by(stores, out)),
    "all rows written to the first": Planted("standardised", _by(stores, without_row)),
    "places written to every other": Planted("by columns", _by(stores, every_other)),
    "rows written by all their lanes": Planted(
        "where the most is", _by(is_a(st.Assign, who=Who.FIRST_LANE), given(who=None))
    ),
    "what all rows have, by each row": Planted("lotka_volterra", _by(stores, given(who=Who.FIRST_ROW))),
    "too few blocks for the rows": Planted("gathered", _by(is_a(model.Call), fewer_blocks)),
    "a loop one step too short": Planted("discounted_rewards", _by(is_a(st.For), given_trips(-1))),
    "an input written": Planted("standardised", _by(stores, with_target(array="x_1"))),
    "a value of another type": Planted("standardised", _by(loads, typed("s32"))),
    "an operand of another type": Planted("standardised", _by(computes("multiply"), other_operand)),
    "a comparison of unlike types": Planted("where the most is", _by(computes("compare"), other_operand)),
    "a combiner's result of another type": Planted("standardised", _by(is_a(model.Combiner), of_whole_number)),
    "a sort's arrays out of order": Planted("sort", _by(SORT, backward("cells"))),
    "a sort of fewer places": Planted("sort", _by(SORT, fewer_places)),
    "a phase that reads what it writes": Planted("gradient of a scale", one_phase),
    "what a phase wrote read as a constant": Planted(
        "gradient of a scale", _by(is_a(model.Parameter, crossing=True), given(crossing=False))
    ),
    "a barrier of a block for all blocks": Planted(
        "spread", _by(is_a(st.Barrier, reach=Reach.GRID), lambda b: st.Barrier(), 1)
    ),
}
