"""Broadcasts along dimensions of one element, which XLA writes in HLO as three operations, are one in StableHLO again.

XLA makes the three of StableHLO's one: a broadcast to the same shape, a reshape without those dimensions, a broadcast
to the result. From the three by themselves it would make two, and from there its passes go other ways than with the
function that a dump is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_stitch.util.jax_names import ir, stablehlo


def join_broadcasts(module: ir.Module) -> None:
    """Join broadcasts, and return the changed module."""
    broadcasts: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.broadcast_in_dim":
            broadcasts.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    unused = [op for last in broadcasts for op in _join(last)]
    erased: set[Any] = set()
    for op in unused:
        if op not in erased and not any(True for _ in op.results[0].uses):
            erased.add(op)
            op.erase()


def _join(last: Any) -> tuple[Any, ...]:
    """Put one in the place of the broadcast, if it can; returns the three, each after its readers."""
    reshape = _made_by(last.operands[0], "stablehlo.reshape")
    first = None if reshape is None else _made_by(reshape.operands[0], "stablehlo.broadcast_in_dim")
    if first is None or first.operands[0].type != first.results[0].type:
        return ()
    shape, squeezed, wide = (list(ir.RankedTensorType(op.results[0].type).shape) for op in (first, reshape, last))
    if _dims(first) != list(range(len(shape))):
        return ()
    dims = expanding(shape, squeezed, wide, _dims(last))
    if dims is None:
        return ()
    with ir.InsertionPoint(last), last.location:
        attribute = ir.DenseI64ArrayAttr.get(dims)
        joined = stablehlo.BroadcastInDimOp(last.results[0].type, first.operands[0], attribute)
    last.results[0].replace_all_uses_with(joined.result)
    return last, reshape, first


def expanding(
    shape: Sequence[int], squeezed: Sequence[int], wide: Sequence[int], dims: Sequence[int]
) -> list[int] | None:
    """Return where the dimensions of ``shape`` go in ``wide``, if those of ``squeezed`` go to ``dims`` and it lacks
    dimensions of one element, which become longer. None where that is impossible.
    """

    def placed(at: int, kept: int, least: int) -> list[int] | None:
        if at == len(shape):
            return [] if kept == len(squeezed) else None
        if kept < len(squeezed) and shape[at] == squeezed[kept] and dims[kept] >= least:
            rest = placed(at + 1, kept + 1, dims[kept] + 1)
            if rest is not None:
                return [dims[kept], *rest]
        if shape[at] == 1:
            for to in range(least, dims[kept] if kept < len(squeezed) else len(wide)):
                if wide[to] != 1 and (rest := placed(at + 1, kept, to + 1)) is not None:
                    return [to, *rest]
        return None

    return None if list(shape) == list(squeezed) else placed(0, 0, 0)


def _made_by(value: Any, name: str) -> Any:
    owner = value.owner
    return owner if not isinstance(owner, ir.Block) and owner.name == name else None


def _dims(op: Any) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
