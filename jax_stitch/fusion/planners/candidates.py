"""Candidate patterns of every vertex by approximate dynamic programming (2021 paper, section 5.2).

In post-order, the candidates of an atom are made of those of its consumers: a few consumers at a time, all their
combinations joined to the atom, and the best of what results (PatternReduction); more consumers are divided in two,
recursively. The same from operands to users finds patterns that meet at a consumer. A value from outside that several
atoms read is a virtual vertex: a producer of all of them without work of its own (remote fusion).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from jax_stitch.fusion.planners.space import Scored, Space

TOP = 3
"""Candidates kept of each vertex."""

GROUP = 2
"""Consumers whose candidates are combined in all ways."""

VALIDATED = 4
"""Times ``TOP`` sets that are tried, best first, until ``TOP`` of them are patterns."""


PACE = {4: 0.25, 2: 0.36}
"""The largest share of all its time that any of 41 searches, in 17 programs, took for a quarter of the atoms on the way
down, and for a half. Most took 0.07 and 0.2.
"""

DOWN = 0.75
"""The same for all of the way down."""


def _share(done: int, count: int) -> float:
    """Return the share of the time that has been spent at most; all if it is not known."""
    return next((share for part, share in PACE.items() if done == count // part and count >= LEAST_ATOMS), 1.0)


LEAST_ATOMS = 12
"""Fewer say too little of each other."""


def candidates(space: Space, top: int = TOP) -> tuple[Scored, ...]:
    """Return patterns worth a kernel that overlap each other in many ways, the most saving first; none where patience
    would be over before all are there: of some alone, the best are many small kernels.
    """
    atoms = space.atoms
    down: dict[int, list[int]] = {}
    for k in reversed(range(len(atoms))):
        if space.gives_up(_share(len(down), len(atoms))):
            return ()
        down[k] = _reduction(space, atoms[k], space.consumers[k], down, top)
    up: dict[int, list[int]] = {}
    if space.gives_up(DOWN):
        return ()
    for k in range(len(atoms)):
        up[k] = _reduction(space, atoms[k], space.producers[k], up, top)
    atom_sets: dict[int, None] = dict.fromkeys(space.maximal)
    through = {k: _best(space, _joined(down[k], up[k]), top) for k in down}
    for shared in space.sharers:
        atom_sets |= dict.fromkeys(_reduction(space, 0, shared, through, top))
    for sets in (down, up, through):
        atom_sets |= dict.fromkeys(s for kept in sets.values() for s in kept)
    patterns = [p for s in atom_sets if (p := space.scored(s)) is not None and p.is_worth]
    return tuple(sorted(patterns, key=lambda p: -p.seconds))


def _reduction(
    space: Space, atom: int, others: Sequence[int], known: Mapping[int, Sequence[int]], top: int
) -> list[int]:
    """Return the best sets of an atom and of candidates of ``others``, each any or none (PatternReduction)."""
    others = [k for k in others if known.get(k)]
    if len(others) <= GROUP:
        unions = (_union(atom, combination) for combination in product(*([0, *known[k]] for k in others)))
        return _best(space, unions, top)
    half = len(others) // 2
    left = _reduction(space, atom, others[:half], known, top)
    right = _reduction(space, atom, others[half:], known, top)
    return _best(space, _joined(left, right), top)


def _union(atom: int, sets: Iterable[int]) -> int:
    for s in sets:
        atom |= s
    return atom


def _joined(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [*left, *right, *(a | b for a in left for b in right)]


def _best(space: Space, sets: Iterable[int], top: int) -> list[int]:
    """Return the ``top`` patterns among sets, validated in the order of what they are estimated to save."""
    ranked = sorted({s for s in sets if s}, key=lambda s: (-space.rank(s), s))
    best: list[int] = []
    for s in ranked[: VALIDATED * top]:
        if space.patience.is_over:
            break
        if space.scored(s) is not None:
            best.append(s)
            if len(best) == top:
                break
    return best
