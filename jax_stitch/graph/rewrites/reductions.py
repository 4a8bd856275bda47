"""Reductions that XLA cut in two for the sake of its own kernels (tree reduction) put back together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..builder import Builder, graph_key
from ..combiners import is_neutral
from ..model import Node, TensorType
from .argmax import takes_the_left_nan


def join_reductions(builder: Builder, node: Node) -> int | None:
    """Return ``reduce(reduce(x))`` as one reduction; and if ``x`` is ``reshape(pad?(y))`` and the reshape only split
    what both steps reduce, as one of ``y``. Several values that are reduced together likewise.

    Whether the padding and the second use of the initial values change nothing is read from the combiner: it has to be
    one operation whose neutral value both are, or that of an ``argmax``, for which the same value twice is that value.
    """
    inner = _step(builder, node)
    if inner is None:
        return None
    count = len(node.operands) // 2
    values, initial = [builder[o] for o in inner.operands[:count]], node.operands[count:]
    left = [d for d in range(len(values[0].tensor.dims)) if d not in inner.attributes["dimensions"]]
    reduced = {*inner.attributes["dimensions"], *(left[d] for d in node.attributes["dimensions"])}
    whole = [_unsplit(builder, v, reduced, i) for v, i in zip(values, initial, strict=True)]
    sources, dimensions = [v.id for v in values], reduced
    if whole[0] is not None and all(w is not None and w[1] == whole[0][1] for w in whole):
        sources, dimensions = [w[0] for w in whole if w is not None], whole[0][1]
    attributes = {"dimensions": tuple(sorted(dimensions)), "steps": steps_of(node) + steps_of(inner)}
    return builder.derive(node, "reduce", node.type, [*sources, *initial], attributes, node.graphs)


def _unsplit(builder: Builder, reshape: Node, reduced: set[int], initial: int) -> tuple[int, set[int]] | None:
    """Return what a reshape (and a padding by ``initial``) was made of, and the dimensions of that which are
    ``reduced``.
    """
    if reshape.op != "reshape":
        return None
    source = builder[reshape.operands[0]]
    dims = source.tensor.dims
    joined: set[int] = set()
    for before, after in _groups(dims, reshape.tensor.dims):
        gone = [d in reduced for d in after]
        if all(gone):
            joined |= set(before)
        elif any(gone) or [dims[d] for d in before] != [reshape.tensor.dims[d] for d in after]:
            return None
    if source.op == "pad" and source.operands[1] == initial:
        if any(p != (0, 0, 0) and (d not in joined or min(p) < 0) for d, p in enumerate(source.attributes["padding"])):
            return None
        source = builder[source.operands[0]]
    return source.id, joined


def steps_of(reduce: Node) -> int:
    """Return the kernels in which XLA does a reduction, one step each."""
    return int(reduce.attributes.get("steps", 1))


def _step(builder: Builder, node: Node) -> Node | None:
    """Return the reduction that ``node`` finishes, if both combine the same way from the same values, which twice are
    as good as once.
    """
    if node.op != "reduce":
        return None
    count = len(node.operands) // 2
    inner = _whole(builder, node) if isinstance(node.type, TensorType) else _of_several(builder, node, count)
    if inner is None or inner.op != "reduce" or len(inner.operands) != 2 * count:
        return None
    if inner.operands[count:] != node.operands[count:]:
        return None
    combiner = node.graphs["to_apply"]
    if graph_key(combiner) != graph_key(inner.graphs["to_apply"]):
        return None
    if count == 1:
        return inner if is_neutral(combiner, builder[node.operands[1]]) else None
    return inner if takes_the_left_nan(combiner) else None


def _whole(builder: Builder, node: Node) -> Node | None:
    """Return what makes the one value that ``node`` reduces, which a reshape may have left as it is."""
    inner = builder[node.operands[0]]
    if inner.op != "reshape":
        return inner
    inner = builder[inner.operands[0]]
    is_the_same = inner.op == "reduce" and inner.tensor.dims == builder[node.operands[0]].tensor.dims
    return inner if is_the_same else None


def _of_several(builder: Builder, node: Node, count: int) -> Node | None:
    """Return what makes all the values that ``node`` reduces, in their order."""
    values = [builder[o] for o in node.operands[:count]]
    if any(v.op != "get-tuple-element" or v.attributes["index"] != k for k, v in enumerate(values)):
        return None
    made = {v.operands[0] for v in values}
    return builder[made.pop()] if len(made) == 1 else None


def _groups(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the finest grouping of the dimensions of two shapes of one size by which groups have equal sizes, in
    order.
    """
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        p = q = 1
        while (not left and not right) or p != q:
            if (p <= q and i < len(a)) or j == len(b):
                p *= a[i]
                left.append(i)
                i += 1
            else:
                q *= b[j]
                right.append(j)
                j += 1
        while i < len(a) and a[i] == 1:
            left.append(i)
            i += 1
        while j < len(b) and b[j] == 1:
            right.append(j)
            j += 1
        yield left, right
