"""A reduction inside the row that keeps some of its places: each lane reduces the elements of its kept places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from jax_stitch.analysis.expr import const, var
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.emit.passes import make_pass
from jax_stitch.kernel.statements import Assign, Barrier, Pass, Serial, Shared, Statement
from jax_stitch.kernel.statements import Scope as Braces
from jax_stitch.schedule.model import RUN, KeptReduceStage

if TYPE_CHECKING:
    from jax_stitch.emit.part import PartEmitter


def inner_reduction(emitter: PartEmitter, stage: KeptReduceStage) -> Braces:
    """The reduction, place by place of what it keeps."""
    r, values = emitter.reducers[stage.reduce], emitter.values
    name = emitter.results[stage.reduce]
    first = emitter.start(stage.reduce) if r.identity is None else (emitter.initial(stage.reduce) or r.identity)
    total = prod(stage.reduced)
    index = emitter.shape.kept_elements(stage)
    in_runs = stage.in_runs and r.identity is not None and r.fields == 1
    whole, target = r.cell(name), r.cell(f"{name}_of_run" if in_runs else name)
    scope = values.stage(PER_PLACE, frozenset(), frozenset())
    operands = emitter.graph[stage.reduce].operands[: r.fields]
    read = [values.element(o, index).value for o in operands]
    scope.lines[PER_PLACE].append(Assign(target, r.combined(target, r.value(read))))
    body = make_pass(emitter.part, stage.kept, [scope])
    values.close()
    lines: list[Statement] = [_at_each(emitter, stage, Assign(whole, first))]
    if in_runs:
        assert r.identity is not None
        part = emitter.part
        behind = (part.split.rows_per_block * stage.kept * 8 + 63) // 64 * 64
        lines.append(Shared(target.name, r.name, part.storage[stage.reduce].offset + behind, stage.kept))
        run = var("q0", total)
        lines.append(
            Serial(
                "q0",
                const(0),
                (const(total),),
                RUN,
                (
                    _at_each(emitter, stage, Assign(target, r.identity)),
                    Serial("q", run, (run + RUN, const(total)), 1, (body,)),
                    _at_each(emitter, stage, Assign(whole, r.combined(whole, target))),
                ),
            )
        )
    else:
        lines.append(Serial("q", const(0), (const(total),), 1, (body,)))
    return Braces((*lines, Barrier()))


def _at_each(emitter: PartEmitter, stage: KeptReduceStage, does: Assign) -> Pass:
    return make_pass(emitter.part, stage.kept, [Scope({PER_ROW: [], PER_PLACE: [does]})])
