"""A reduction inside the row that leaves some of its places: each lane reduces the elements of those that it has."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from jax_stitch.analysis.expr import const, var
from jax_stitch.analysis.locality import PLACE, STEP
from jax_stitch.emit.blocked_sums import BlockedSums
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.emit.passes import make_pass
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel.expressions import Element, Ref, Value
from jax_stitch.kernel.statements import (
    Accumulator,
    Assign,
    Barrier,
    Pass,
    Reduce,
    Rows,
    RowValue,
    Serial,
    Shared,
    Statement,
)
from jax_stitch.kernel.statements import Scope as Braces
from jax_stitch.schedule.model import SUM_BLOCK, InnerReducePass, LoopPass
from jax_stitch.schedule.row_passes import results_of
from jax_stitch.schedule.storage import shares_bytes

if TYPE_CHECKING:
    from jax_stitch.emit.part import PartEmitter


def inner_reduction(emitter: PartEmitter, row_pass: InnerReducePass) -> Braces:
    """The reduction, place by place of what it leaves."""
    if row_pass.along:
        return _along(emitter, row_pass)
    r, values = emitter.reducers[row_pass.reduce], emitter.values
    name = emitter.results[row_pass.reduce]
    first = emitter.start(row_pass.reduce) if r.identity is None else (emitter.initial(row_pass.reduce) or r.identity)
    total = prod(row_pass.reduced)
    index = emitter.shape.inner_reduce_elements(row_pass)
    if row_pass.shares > 1:
        return _shared_out(emitter, row_pass, first)
    in_blocks = row_pass.in_blocks and r.identity is not None and r.fields == 1
    whole, target = r.cell(name), r.cell(f"{name}_of_run" if in_blocks else name)
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    operands = emitter.graph[row_pass.reduce].operands[: r.fields]
    read = [values.element(o, index).value for o in operands]
    scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value(read))))
    body = make_pass(emitter.part, row_pass.size, [scope])
    values.close()
    lines: list[Statement] = [_at_each(emitter, row_pass.size, Assign(whole, first))]
    if in_blocks:
        assert r.identity is not None
        part = emitter.part
        behind = (part.split.rows_per_block * row_pass.size * 8 + 63) // 64 * 64
        lines.append(Shared(target.name, r.name, part.storage[row_pass.reduce].offset + behind, row_pass.size))
        block = var("q0", total)
        lines.append(
            Serial(
                "q0",
                const(0),
                (const(total),),
                SUM_BLOCK,
                (
                    _at_each(emitter, row_pass.size, Assign(target, r.identity)),
                    Serial(STEP, block, (block + SUM_BLOCK, const(total)), 1, (body,)),
                    _at_each(emitter, row_pass.size, Assign(whole, r.combined(whole, target))),
                ),
            )
        )
    else:
        lines.append(Serial(STEP, const(0), (const(total),), 1, (body,)))
    return Braces((*lines, Barrier()))


def _shared_out(emitter: PartEmitter, row_pass: InnerReducePass, first: Value) -> Braces:
    """The reduction of which each lane has a share; then each place's shares, in groups where they are many."""
    r, part, values = emitter.reducers[row_pass.reduce], emitter.part, emitter.values
    name, lowest = emitter.results[row_pass.reduce], emitter.start(row_pass.reduce)
    own, groups = row_pass.left, row_pass.groups
    stored = next(i for i in results_of(emitter.graph, emitter.graph[row_pass.reduce]) if i >= 0)
    at = part.storage[stored].offset + (part.split.rows_per_block * own * 8 * r.fields + 63) // 64 * 64
    share, group = r.cell(f"{name}_of_share"), r.cell(f"{name}_of_group")
    own_share = Element(share.name, var(PLACE, row_pass.size), share.dtype)
    scope = values.open(PER_PLACE, frozenset(), frozenset(), row_pass.vector)
    index, operands = emitter.shape.inner_reduce_elements(row_pass), emitter.graph[row_pass.reduce].operands[: r.fields]
    read = r.value([values.element(o, index).value for o in operands])
    scope.lines[PER_PLACE].append(Assign(own_share, r.combined(own_share, read)))
    body = make_pass(part, row_pass.size, [scope])
    values.close()
    lines: list[Statement] = [
        Shared(share.name, r.name, at, row_pass.size),
        _at_each(emitter, row_pass.size, Assign(own_share, lowest), row_pass.vector),
        Serial(STEP, const(0), (const(prod(row_pass.reduced)),), 1, (body,)),
        Barrier(),
    ]
    if groups > 1:
        lines.append(Shared(group.name, r.name, at + shares_bytes(row_pass, part.split, r.fields)[0], own * groups))
        lines += _joined(emitter, r, group, lowest, share.name, own * groups, row_pass.shares // groups)
        share = group
    lines += _joined(emitter, r, r.cell(name), first, share.name, own, groups if groups > 1 else row_pass.shares)
    return Braces(tuple(lines))


def _along(emitter: PartEmitter, row_pass: InnerReducePass) -> Braces:
    """The reduction place after place, by lanes that go along what is reduced."""
    i = row_pass.reduce
    r, part, values = emitter.reducers[i], emitter.part, emitter.values
    whole = emitter.accumulator(i)
    blocked = BlockedSums(part, LoopPass(row_pass.size, (i,), (), ()), {i: r}, lambda _: whole)
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    index = emitter.shape.inner_reduce_elements(row_pass)
    target = r.cell(blocked.target(i))
    read = values.element(emitter.graph[i].operands[0], index).value
    scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value([read]))))
    body = make_pass(part, row_pass.size, [scope], joins=blocked.joins())
    values.close()
    result = r.cell(f"{emitter.results[i]}_of_place")
    initial = emitter.initial(i)
    at = Element(emitter.results[i], var(STEP, row_pass.left), r.dtype)
    each: tuple[Statement, ...] = (
        Accumulator(whole, r.name, emitter.start(i)),
        *blocked.declarations(),
        body,
        *blocked.totals(),
        Reduce(r.name, result.name, whole),
        Rows((Assign(at, result if initial is None else r.combined(result, initial)),)),
    )
    places = Serial(STEP, const(0), (const(row_pass.left),), 1, each)
    return Braces((RowValue(result.name, r.name), places, Barrier()))


def _joined(
    emitter: PartEmitter, r: Reducer, to: Ref, first: Value, array: str, places: int, count: int
) -> list[Statement]:
    """Each of ``places`` places is ``first`` and ``count`` elements of an array, that many places apart, combined."""
    element = Element(array, var(PLACE, places) + var(STEP, count) * places, to.dtype)
    body = _at_each(emitter, places, Assign(to, r.combined(to, element)))
    each = Serial(STEP, const(0), (const(count),), 1, (body,))
    return [_at_each(emitter, places, Assign(to, first)), each, Barrier()]


def _at_each(emitter: PartEmitter, places: int, does: Assign, vector: int = 1) -> Pass:
    return make_pass(emitter.part, places, [Scope({PER_ROW: [], PER_PLACE: [does]}, vector=vector)])
