"""Partial results of a block: started before its rows, written after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_stitch.emit.passes import place_axes
from jax_stitch.ir.indices.expr import Expr, Var
from jax_stitch.ir.indices.variables import PLACE
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Ref
from jax_stitch.kernel.threads import How, Space, Who
from jax_stitch.schedule.model import LoopPass, OncePass, StorageKind

if TYPE_CHECKING:
    from jax_stitch.emit.part import PartEmitter


def around(emitter: PartEmitter) -> tuple[list[st.Statement], list[st.Statement]]:
    """Return the statements before and after the rows of a part."""
    before: list[st.Statement] = []
    after: list[st.Statement] = []
    for s in emitter.part.passes:
        for i in s.partials if isinstance(s, OncePass | LoopPass) else ():
            r = emitter.reducers[i]
            assert r.identity is not None
            if isinstance(s, LoopPass):
                before += _begin(emitter, i, s.size)
                after += _end(emitter, i, s.size)
                continue
            total, accumulator = f"total_{r.name}", emitter.accumulator(i)
            before.append(st.Allocate.accumulator(accumulator, r.name, r.identity))
            after.append(st.Apply("reduce_block", (total, accumulator), r.name))
            target = Element(emitter.out[i], _of_block(emitter, 1), emitter.graph[i].tensor.dtype)
            after.append(st.Assign(target, r.cell(total), Who.ONE_THREAD))
    return before, after


def _of_block(emitter: PartEmitter, size: int) -> Expr:
    """Return where the results of the block start."""
    last = emitter.part.split.blocks - 1
    return Expr(((Var("block", 0, last), size),), 0, 0, last * size)


def _begin(emitter: PartEmitter, i: int, size: int) -> list[st.Statement]:
    r = emitter.reducers[i]
    assert r.identity is not None
    key = (i, emitter.shape.operand_elements(emitter.graph[i])[0])
    declared = emitter.declare_own(key, r.name)
    fill = "fill_registers" if declared.space is Space.REGISTERS else "fill_shared"
    sizes = (emitter.part.per_lane(size), size)
    return [declared, st.Apply(fill, (declared.name,), sizes=sizes, operands=(r.identity,))]


def _end(emitter: PartEmitter, i: int, size: int) -> list[st.Statement]:
    r, part, dtype = emitter.reducers[i], emitter.part, emitter.graph[i].tensor.dtype
    key = (i, emitter.shape.operand_elements(emitter.graph[i])[0])
    name, first = emitter.names.own(key), _of_block(emitter, size)
    at = Expr((*first.terms, (Var(PLACE, 0, size - 1), 1)), 0, 0, first.high + size - 1)
    vector = part.vectors.get(size, 1)
    together = emitter.names.fresh(f"{name}_vector") if vector > 1 else ""
    written = st.Assign(Element(emitter.out[i], at, dtype, together), Ref(name, r.dtype))
    how = How.UNROLLED if part.own_storage[key].kind is StorageKind.REGISTERS else How.LANE
    stretch = st.Stretch(0, size, (written,))
    one_row = st.Pass(*place_axes(size, how=how), (), (stretch,), vector, first_row_only=True)
    if part.split.rows_per_block == 1:
        return [one_row]
    return [st.Apply("join_rows", (name,), r.name, (part.per_lane(size), size)), one_row]
