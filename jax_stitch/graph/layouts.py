"""What a ``bitcast`` means for the logical value: the same bytes read under another shape and layout."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo_parser import ELEMENT_TYPES, ArrayShape

from .errors import GraphError
from .types import minor_to_major


class Step(Struct, frozen=True):
    """One logical operation: ``op`` is "reshape" (to ``dims``), "transpose" (``permutation``, result ``dims``) or
    "bitcast-convert"."""

    op: str
    dtype: str
    dims: tuple[int, ...]
    permutation: tuple[int, ...] = ()


def bitcast_steps(source: ArrayShape, target: ArrayShape, where: str) -> list[Step]:
    """Return the reshapes and transposes (at most three) that together do what the bitcast does; none if it does
    nothing.

    Raises GraphError where the element width changes under layouts that are not row-major.
    """
    if source.dtype == target.dtype:
        return _moves(target.dtype, source, target)
    width, new_width = ELEMENT_TYPES[source.dtype].bits, ELEMENT_TYPES[target.dtype].bits
    if width == new_width:
        return [Step("bitcast-convert", target.dtype, source.dims), *_moves(target.dtype, source, target)]
    if not (_row_major(source) and _row_major(target)):
        raise GraphError(f"{where}: a bitcast from {source} to {target} changes the element width and the layout")
    # HLO's bitcast-convert gathers or splits along a last dimension of its own.
    before: tuple[int, ...] = (source.size,)
    after: tuple[int, ...] = (target.size,)
    if width < new_width:
        before = (target.size, new_width // width)
    else:
        after = (source.size, width // new_width)
    steps = [
        Step("reshape", source.dtype, before),
        Step("bitcast-convert", target.dtype, after),
        Step("reshape", target.dtype, target.dims),
    ]
    return _without_identities(source.dims, steps)


def _moves(dtype: str, source: ArrayShape, target: ArrayShape) -> list[Step]:
    """Reshape to the finest common factors ("atoms") of both shapes, transpose, reshape to the target."""
    if source.size == 0:
        return [] if source.dims == target.dims else [Step("reshape", dtype, target.dims)]
    source_order, target_order = _major_to_minor(source), _major_to_minor(target)
    factors = _common_factors([source.dims[d] for d in source_order], [target.dims[d] for d in target_order])
    if factors is None:
        # The shapes share no factorisation, so go through memory order.
        physical = tuple(source.dims[d] for d in source_order)
        flat = tuple(target.dims[d] for d in target_order)
        back = _inverse(target_order)
        steps = [
            Step("transpose", dtype, physical, source_order),
            Step("reshape", dtype, flat),
            Step("transpose", dtype, target.dims, back),
        ]
    else:
        atoms, of_source, of_target = factors
        # Atom numbers (in memory order) in the logical order of the source and of the target; unit dimensions have
        # none.
        before = [a for d in range(len(source.dims)) for a in of_source[source_order.index(d)]]
        after = [a for d in range(len(target.dims)) for a in of_target[target_order.index(d)]]
        split = tuple(atoms[a] for a in before)
        moved = tuple(atoms[a] for a in after)
        permutation = tuple(before.index(a) for a in after)
        if before == after:
            steps = [Step("reshape", dtype, target.dims)]
        else:
            steps = [
                Step("reshape", dtype, split),
                Step("transpose", dtype, moved, permutation),
                Step("reshape", dtype, target.dims),
            ]
    return _without_identities(source.dims, steps)


def _without_identities(dims: tuple[int, ...], steps: Sequence[Step]) -> list[Step]:
    kept = []
    for step in steps:
        in_order = step.op == "transpose" and step.permutation == tuple(range(len(dims)))
        if not (in_order or (step.op == "reshape" and step.dims == dims)):
            kept.append(step)
        dims = step.dims
    return kept


def _common_factors(
    source: Sequence[int], target: Sequence[int]
) -> tuple[list[int], list[list[int]], list[list[int]]] | None:
    """Return sizes (> 1) whose consecutive products make both shapes, and for each dimension of either the numbers of
    its sizes.
    """
    atoms: list[int] = []
    of_source: list[list[int]] = [[] for _ in source]
    of_target: list[list[int]] = [[] for _ in target]
    i = j = 0
    left, right = 1, 1  # what remains of the dimension being split on either side
    while True:
        while left == 1 and i < len(source):
            left, i = source[i], i + 1
        while right == 1 and j < len(target):
            right, j = target[j], j + 1
        if left == 1 and right == 1:
            return atoms, of_source, of_target
        atom = min(left, right)
        if atom == 1 or left % atom or right % atom:
            return None
        of_source[i - 1].append(len(atoms))
        of_target[j - 1].append(len(atoms))
        atoms.append(atom)
        left, right = left // atom, right // atom


def _row_major(shape: ArrayShape) -> bool:
    return _major_to_minor(shape) == tuple(range(len(shape.dims)))


def _major_to_minor(shape: ArrayShape) -> tuple[int, ...]:
    return tuple(reversed(minor_to_major(shape)))


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(permutation)
    for position, d in enumerate(permutation):
        inverse[d] = position
    return tuple(inverse)
