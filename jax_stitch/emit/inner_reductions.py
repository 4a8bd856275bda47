"""A reduction inside the row that leaves some of its places: each lane reduces the elements of those that it has."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.emit.blocked_sums import BlockedSums
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.emit.passes import make_pass
from jax_stitch.emit.reducers import Reducer
from jax_stitch.ir.indices.expr import Expr, const, var
from jax_stitch.ir.indices.variables import PLACE, TERM
from jax_stitch.kernel.expressions import Element, Ref, Value
from jax_stitch.kernel.statements import Allocate, Apply, Assign, Barrier, For, Pass, Rows, Statement
from jax_stitch.kernel.statements import Scope as Braces
from jax_stitch.schedule.model import SUM_BLOCK, InnerReducePass, LoopPass
from jax_stitch.schedule.row_passes import results_of
from jax_stitch.schedule.storage import block_bytes, results_bytes, shares_bytes

if TYPE_CHECKING:
    from jax_stitch.emit.part import PartEmitter


def inner_reduction(emitter: PartEmitter, row_pass: InnerReducePass) -> Braces:
    """Return the reductions of a pass, place by place of what they leave."""
    if row_pass.along:
        return _along(emitter, row_pass)
    if row_pass.shares > 1 and not row_pass.neighbours:
        return _shared_out(emitter, row_pass)
    values, total, size = emitter.values, prod(row_pass.reduced), row_pass.size
    index = emitter.shape.inner_reduce_elements(row_pass)
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    lanes = [_lanes_of(emitter, row_pass, i) for i in row_pass.reduces]
    after: list[Statement] = [Barrier()]
    for i, own in zip(row_pass.reduces, lanes, strict=True):
        r, target = own.reducer, own.whole if own.block is None else own.block
        read = [values.element(o, index).value for o in emitter.graph[i].operands[: r.fields]]
        scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value(read))))
        if row_pass.neighbours:
            result, shares = r.cell(emitter.results[i]), var(PLACE, row_pass.left) * row_pass.shares
            at = shares + var(TERM, row_pass.shares)
            after += _joined(emitter, r, result, _first(emitter, i), own.whole.name, row_pass.left, at)
    body = make_pass(emitter.part, size, [scope])
    values.close()
    before = [a for own in lanes for a in own.arrays]
    before += [_at_each(emitter, size, Assign(own.whole, own.first)) for own in lanes]
    blocks = [(own.reducer, own.whole, own.block) for own in lanes if own.block is not None]
    if not blocks:
        return Braces((*before, For.times(TERM, total, (body,)), *after))
    start = var("q0", total)
    each: list[Statement] = []
    for r, _, block in blocks:
        assert r.identity is not None
        each.append(_at_each(emitter, size, Assign(block, r.identity)))
    each.append(For(TERM, start, (start + SUM_BLOCK, const(total)), 1, (body,)))
    each += [_at_each(emitter, size, Assign(whole, r.combined(whole, block))) for r, whole, block in blocks]
    return Braces((*before, For("q0", const(0), (const(total),), SUM_BLOCK, tuple(each)), *after))


class _Lanes(Struct, frozen=True):
    """A reduction's sums of lanes: the whole of what each takes, and where there are blocks the block at hand."""

    reducer: Reducer
    whole: Ref
    first: Value
    block: Ref | None
    arrays: list[Statement]
    """Declarations of what stands behind the results in shared memory."""


def _lanes_of(emitter: PartEmitter, row_pass: InnerReducePass, i: int) -> _Lanes:
    r, name, split = emitter.reducers[i], emitter.results[i], emitter.part.split
    behind = _behind(emitter, row_pass, i)
    whole, first, arrays, block = r.cell(name), _first(emitter, i), list[Statement](), None
    if row_pass.neighbours:
        assert r.identity is not None
        whole, first = r.cell(f"{name}_of_share"), r.identity
        arrays.append(Allocate.shared(whole.name, r.name, row_pass.size, behind))
        behind += block_bytes(row_pass, split)
    if row_pass.in_blocks and r.identity is not None and r.fields == 1:
        block = r.cell(f"{name}_of_run")
        arrays.append(Allocate.shared(block.name, r.name, row_pass.size, behind))
    return _Lanes(r, whole, first, block, arrays)


def _behind(emitter: PartEmitter, row_pass: InnerReducePass, i: int) -> int:
    """Return where shared memory goes on behind a reduction's results."""
    stored = next(k for k in results_of(emitter.graph, emitter.graph[i]) if k >= 0)
    results = results_bytes(row_pass, emitter.part.split, emitter.reducers[i].fields)
    return emitter.part.storage[stored].offset + results


def _first(emitter: PartEmitter, i: int) -> Value:
    """Return the initial value of a reduction."""
    r = emitter.reducers[i]
    return emitter.start(i) if r.identity is None else (emitter.initial(i) or r.identity)


def _shared_out(emitter: PartEmitter, row_pass: InnerReducePass) -> Braces:
    """Return the reduction of which each lane has a share; then each place's shares, in groups where they are many."""
    r, part, values = emitter.reducers[row_pass.reduce], emitter.part, emitter.values
    name, lowest = emitter.results[row_pass.reduce], emitter.start(row_pass.reduce)
    own, groups = row_pass.left, row_pass.groups
    at = _behind(emitter, row_pass, row_pass.reduce)
    share, group = r.cell(f"{name}_of_share"), r.cell(f"{name}_of_group")
    own_share = Element(share.name, _spread(var(PLACE, row_pass.size), row_pass), share.dtype)
    scope = values.open(PER_PLACE, frozenset(), frozenset(), row_pass.vector)
    index, operands = emitter.shape.inner_reduce_elements(row_pass), emitter.graph[row_pass.reduce].operands[: r.fields]
    read = r.value([values.element(o, index).value for o in operands])
    scope.lines[PER_PLACE].append(Assign(own_share, r.combined(own_share, read)))
    body = make_pass(part, row_pass.size, [scope])
    values.close()
    lines: list[Statement] = [
        Allocate.shared(share.name, r.name, row_pass.share_places, at),
        _at_each(emitter, row_pass.size, Assign(own_share, lowest), row_pass.vector),
        For.times(TERM, prod(row_pass.reduced), (body,)),
        Barrier(),
    ]
    if groups > 1:
        lines.append(
            Allocate.shared(group.name, r.name, own * groups, at + shares_bytes(row_pass, part.split, r.fields)[0])
        )
        lines += _joined(
            *(emitter, r, group, lowest, share.name, own * groups),
            _spread(_apart(own * groups, row_pass.shares // groups), row_pass),
        )
        share = group
    first = _first(emitter, row_pass.reduce)
    at_share = _apart(own, groups) if groups > 1 else _spread(_apart(own, row_pass.shares), row_pass)
    lines += _joined(emitter, r, r.cell(name), first, share.name, own, at_share)
    return Braces(tuple(lines))


def _along(emitter: PartEmitter, row_pass: InnerReducePass) -> Braces:
    """Return the reductions place after place, by lanes that go along what is reduced."""
    part, values, size = emitter.part, emitter.values, row_pass.size
    reducers = {i: emitter.reducers[i] for i in row_pass.reduces}
    blocked = BlockedSums(part, LoopPass(size, row_pass.reduces, (), ()), reducers, emitter.accumulator)
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    index = emitter.shape.inner_reduce_elements(row_pass)
    for i, r in reducers.items():
        target = r.cell(blocked.target(i))
        read = values.element(emitter.graph[i].operands[0], index).value
        scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value([read]))))
    body = make_pass(part, size, [scope], joins=blocked.joins())
    values.close()
    results = {i: r.cell(f"{emitter.results[i]}_of_place") for i, r in reducers.items()}
    each: list[Statement] = [
        Allocate.accumulator(emitter.accumulator(i), r.name, emitter.start(i)) for i, r in reducers.items()
    ]
    each += [*blocked.declarations(), body, *blocked.totals()]
    for i, r in reducers.items():
        initial, result = emitter.initial(i), results[i]
        at = Element(emitter.results[i], var(TERM, row_pass.left), r.dtype)
        each.append(Apply("reduce", (result.name, emitter.accumulator(i)), r.name))
        each.append(Rows((Assign(at, result if initial is None else r.combined(result, initial)),)))
    places = For.times(TERM, row_pass.left, tuple(each))
    return Braces((*(Allocate.of_row(results[i].name, r.name) for i, r in reducers.items()), places, Barrier()))


def _spread(place: Expr, row_pass: InnerReducePass) -> Expr:
    """Return where the share of a place lies."""
    vector = row_pass.vector
    return place if vector == 1 else place // vector + place % vector * row_pass.share_stride


def _apart(places: int, count: int) -> Expr:
    """Return, of ``count`` elements that are ``places`` apart, the one of a step for a place."""
    return var(PLACE, places) + var(TERM, count) * places


def _joined(
    emitter: PartEmitter, r: Reducer, to: Ref, first: Value, array: str, places: int, at: Expr
) -> list[Statement]:
    """Return the reduction of an array at each of ``places`` places, from ``first`` on: the element ``at`` each
    step.
    """
    (steps,) = (v.high + 1 for v in at.variables() if v.name == TERM)
    body = _at_each(emitter, places, Assign(to, r.combined(to, Element(array, at, to.dtype))))
    each = For.times(TERM, steps, (body,))
    return [_at_each(emitter, places, Assign(to, first)), each, Barrier()]


def _at_each(emitter: PartEmitter, places: int, does: Assign, vector: int = 1) -> Pass:
    return make_pass(emitter.part, places, [Scope({PER_ROW: [], PER_PLACE: [does]}, vector=vector)])
