"""Windows of narrow floats, which XLA's GPU compiler combines in a wider type and rounds at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder, moved
from ..model import Graph, Node, TensorType


def narrow_window(builder: Builder, node: Node) -> int | None:
    """Return ``convert(reduce-window(convert(x)))``, whose combiner converts to the type of ``x`` and back, as the
    window of ``x`` in its own type: no step has more precision than that.
    """
    if node.op != "convert":
        return None
    window, narrow = builder[node.operands[0]], node.tensor.dtype
    if window.op != "reduce-window" or len(window.operands) != 2:
        return None
    source, initial = (builder[o] for o in window.operands)
    if source.op != "convert" or builder[source.operands[0]].tensor.dtype != narrow:
        return None
    combiner, begin = _narrow(window.graphs["to_apply"], narrow), _narrowed(builder, initial, narrow)
    if combiner is None or begin is None:
        return None
    type_ = TensorType(narrow, window.tensor.dims)
    operands = source.operands[0], begin
    return builder.derive(window, "reduce-window", type_, operands, window.attributes, {"to_apply": combiner})


def _narrowed(builder: Builder, initial: Node, narrow: str) -> int | None:
    """Return an initial value in the type ``narrow``, which has it exactly."""
    if initial.op == "convert" and builder[initial.operands[0]].tensor.dtype == narrow:
        return initial.operands[0]
    if initial.literal is None:
        return None
    rounded = np.asarray(initial.literal).astype(ELEMENT_TYPES[narrow].numpy)
    same = np.array_equal(rounded.astype(initial.literal.dtype), initial.literal)
    return builder.constant(initial, narrow, rounded) if same else None


def _narrow(combiner: Graph, narrow: str) -> Graph | None:
    """Return the combiner of parameters of type ``narrow``, of one that converts its own to it and its result from it;
    None of any other.
    """
    (result,) = combiner.results
    if combiner[result].op != "convert":
        return None
    builder = Builder(combiner.name)
    ids = {p: builder.parameter(TensorType(narrow, ()), combiner[p].name) for p in combiner.parameters}
    for node in combiner.nodes:
        if node.op == "parameter" or node.id == result:
            continue
        if node.op == "convert" and node.operands[0] in combiner.parameters and node.tensor.dtype == narrow:
            ids[node.id] = ids[node.operands[0]]
        elif _reads_wide(combiner, node.operands):
            return None
        else:
            ids[node.id] = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
    (last,) = combiner[result].operands
    if _reads_wide(combiner, [last]) or combiner[last].tensor.dtype != narrow:
        return None
    return builder.finish([ids[last]], combiner.single, combiner.layouts)


def _reads_wide(combiner: Graph, operands: Sequence[int]) -> bool:
    """Return whether one of the values is a parameter as it came."""
    return any(o in combiner.parameters for o in operands)
