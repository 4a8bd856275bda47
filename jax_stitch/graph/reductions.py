"""Reductions that XLA cut in two for the sake of its own kernels (tree reduction) put back together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .builder import Builder, graph_key
from .combiners import is_neutral
from .model import Node, TensorType


def join_reductions(builder: Builder, node: Node) -> int | None:
    """``reduce(reduce(x))`` as one reduction; and where ``x`` is ``reshape(pad?(y))`` and the reshape only split what
    both steps reduce, as one of ``y``.

    Whether the padding and the second use of the initial value change nothing is read from the combiner: it has to be
    one operation whose neutral value both are.
    """
    inner = _step(builder, node)
    if inner is None:
        return None
    value = builder[inner.operands[0]]
    left = [d for d in range(len(value.tensor.dims)) if d not in inner.attributes["dimensions"]]
    reduced = {*inner.attributes["dimensions"], *(left[d] for d in node.attributes["dimensions"])}
    source, dimensions = _unsplit(builder, value, reduced, node.operands[1]) or (value.id, reduced)
    attributes = {"dimensions": tuple(sorted(dimensions)), "steps": steps_of(node) + steps_of(inner)}
    return builder.derive(node, "reduce", node.type, [source, node.operands[1]], attributes, node.graphs)


def _unsplit(builder: Builder, reshape: Node, reduced: set[int], initial: int) -> tuple[int, set[int]] | None:
    """What a reshape (and a padding by ``initial``) was made of, and the dimensions of that which are ``reduced``."""
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
    """The kernels in which XLA does a reduction, one step each."""
    return int(reduce.attributes.get("steps", 1))


def _step(builder: Builder, node: Node) -> Node | None:
    """The reduction that ``node`` finishes, if both combine the same way from the same neutral value."""
    if node.op != "reduce" or len(node.operands) != 2 or not isinstance(node.type, TensorType):
        return None
    inner = builder[node.operands[0]]
    if inner.op == "reshape":
        inner = builder[inner.operands[0]]
        if inner.op != "reduce" or inner.tensor.dims != builder[node.operands[0]].tensor.dims:
            return None
    if inner.op != "reduce" or len(inner.operands) != 2 or inner.operands[1] != node.operands[1]:
        return None
    combiner = node.graphs["to_apply"]
    if graph_key(combiner) != graph_key(inner.graphs["to_apply"]):
        return None
    return inner if is_neutral(combiner, builder[node.operands[1]]) else None


def _groups(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The finest grouping of the dimensions of two shapes of one size by which groups have equal sizes, in order."""
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
