"""A reduction inside the row that keeps some of its places: each lane reduces the elements of its kept places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from jax_stitch.analysis.expr import const, var
from jax_stitch.analysis.locality import PLACE
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.emit.passes import make_pass
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel.expressions import Element, Ref, Value
from jax_stitch.kernel.statements import Assign, Barrier, Pass, Serial, Shared, Statement
from jax_stitch.kernel.statements import Scope as Braces
from jax_stitch.schedule.model import SUM_BLOCK, KeptReduceStage
from jax_stitch.schedule.shares import groups_of
from jax_stitch.schedule.storage import shares_bytes

if TYPE_CHECKING:
    from jax_stitch.emit.part import PartEmitter


def inner_reduction(emitter: PartEmitter, stage: KeptReduceStage) -> Braces:
    """The reduction, place by place of what it keeps."""
    r, values = emitter.reducers[stage.reduce], emitter.values
    name = emitter.results[stage.reduce]
    first = emitter.start(stage.reduce) if r.identity is None else (emitter.initial(stage.reduce) or r.identity)
    total = prod(stage.reduced)
    index = emitter.shape.kept_elements(stage)
    if stage.shares > 1:
        return _shared_out(emitter, stage, first)
    in_blocks = stage.in_blocks and r.identity is not None and r.fields == 1
    whole, target = r.cell(name), r.cell(f"{name}_of_run" if in_blocks else name)
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    operands = emitter.graph[stage.reduce].operands[: r.fields]
    read = [values.element(o, index).value for o in operands]
    scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value(read))))
    body = make_pass(emitter.part, stage.kept, [scope])
    values.close()
    lines: list[Statement] = [_at_each(emitter, stage.kept, Assign(whole, first))]
    if in_blocks:
        assert r.identity is not None
        part = emitter.part
        behind = (part.split.rows_per_block * stage.kept * 8 + 63) // 64 * 64
        lines.append(Shared(target.name, r.name, part.storage[stage.reduce].offset + behind, stage.kept))
        block = var("q0", total)
        lines.append(
            Serial(
                "q0",
                const(0),
                (const(total),),
                SUM_BLOCK,
                (
                    _at_each(emitter, stage.kept, Assign(target, r.identity)),
                    Serial("q", block, (block + SUM_BLOCK, const(total)), 1, (body,)),
                    _at_each(emitter, stage.kept, Assign(whole, r.combined(whole, target))),
                ),
            )
        )
    else:
        lines.append(Serial("q", const(0), (const(total),), 1, (body,)))
    return Braces((*lines, Barrier()))


def _shared_out(emitter: PartEmitter, stage: KeptReduceStage, first: Value) -> Braces:
    """The reduction of which each lane has a share; then each kept place's shares, in groups where they are many."""
    r, part, values = emitter.reducers[stage.reduce], emitter.part, emitter.values
    assert r.identity is not None
    name = emitter.results[stage.reduce]
    own, groups = stage.kept // stage.shares, groups_of(stage.shares)
    at = part.storage[stage.reduce].offset + (part.split.rows_per_block * own * 8 + 63) // 64 * 64
    share, group = r.cell(f"{name}_of_share"), r.cell(f"{name}_of_group")
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    read = values.element(emitter.graph[stage.reduce].operands[0], emitter.shape.kept_elements(stage)).value
    scope.lines[PER_PLACE].append(Assign(share, r.combined(share, read)))
    body = make_pass(part, stage.kept, [scope])
    values.close()
    lines: list[Statement] = [
        Shared(share.name, r.name, at, stage.kept),
        _at_each(emitter, stage.kept, Assign(share, r.identity)),
        Serial("q", const(0), (const(prod(stage.reduced)),), 1, (body,)),
        Barrier(),
    ]
    if groups > 1:
        lines.append(Shared(group.name, r.name, at + shares_bytes(stage, part.split)[0], own * groups))
        lines += _joined(emitter, r, group, r.identity, share.name, own * groups, stage.shares // groups)
        share = group
    lines += _joined(emitter, r, r.cell(name), first, share.name, own, groups if groups > 1 else stage.shares)
    return Braces(tuple(lines))


def _joined(
    emitter: PartEmitter, r: Reducer, to: Ref, first: Value, array: str, places: int, count: int
) -> list[Statement]:
    """Each of ``places`` places is ``first`` and ``count`` elements of an array, that many places apart, combined."""
    element = Element(array, var(PLACE, places) + var("q", count) * places, to.dtype)
    body = _at_each(emitter, places, Assign(to, r.combined(to, element)))
    return [_at_each(emitter, places, Assign(to, first)), Serial("q", const(0), (const(count),), 1, (body,)), Barrier()]


def _at_each(emitter: PartEmitter, places: int, does: Assign) -> Pass:
    return make_pass(emitter.part, places, [Scope({PER_ROW: [], PER_PLACE: [does]})])
