"""Layered drawing of a graph, from top to bottom (after Sugiyama): ranks, order in each rank, places.

Long edges get no nodes of their own in the ranks that they cross: a training step has thousands of them, from forward
to backward. They are drawn as curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 112.0, 46.0
"""Of a cell."""

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Places:
    """Where each node's middle is."""

    x: tuple[float, ...]
    y: tuple[float, ...]


def layered(count: int, edges: Sequence[tuple[int, int]]) -> Places:
    """Return places for nodes 0 to ``count - 1``; an edge against the order of the numbers is not looked at."""
    forward = [(a, b) for a, b in dict.fromkeys(edges) if a < b]
    reads: list[list[int]] = [[] for _ in range(count)]
    users: list[list[int]] = [[] for _ in range(count)]
    for a, b in forward:
        reads[b].append(a)
        users[a].append(b)
    rank = _ranks(count, reads, users)
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for i in range(count):
        rows[rank[i]].append(i)
    rows = [row for row in rows if row]
    x = [0.0] * count
    for row in rows:
        for n, i in enumerate(row):
            x[i] = n * WIDTH
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = reads if down else users
            other = users if down else reads
            _place(row, [_wanted(i, near[i] or other[i], x, rank) for i in row], x, reorder=sweep < _SWEEPS - 2)
    left = min(x, default=0.0)
    row_of = {i: n for n, row in enumerate(rows) for i in row}
    return Places(tuple(round(v - left, 1) for v in x), tuple(row_of[i] * HEIGHT for i in range(count)))


def _ranks(count: int, reads: Sequence[Sequence[int]], users: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest way from above; what has more users than operands hangs as low as these allow."""
    rank = [0] * count
    for i in range(count):
        rank[i] = max((rank[o] + 1 for o in reads[i]), default=0)
    for i in reversed(range(count)):
        if users[i] and len(users[i]) >= len(reads[i]):
            rank[i] = min(rank[u] for u in users[i]) - 1
    return rank


def _wanted(i: int, near: Sequence[int], x: Sequence[float], rank: Sequence[int]) -> float:
    """Return the middle of a node's neighbours, the nearer the more."""
    if not near:
        return x[i]
    weights = [1.0 / abs(rank[o] - rank[i]) if rank[o] != rank[i] else 1.0 for o in near]
    return sum(w * x[o] for w, o in zip(weights, near, strict=True)) / sum(weights)


def _place(row: list[int], wanted: Sequence[float], x: list[float], reorder: bool) -> None:
    """Put a row's nodes as near to where they want to be as their order and width allow (isotonic regression)."""
    want = dict(zip(row, wanted, strict=True))
    if reorder:
        row.sort(key=lambda i: want[i])
    blocks: list[tuple[float, int]] = []  # (sum of wanted places less the width before each, how many)
    for n, i in enumerate(row):
        total, size = want[i] - n * WIDTH, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            before, many = blocks.pop()
            total, size = total + before, size + many
        blocks.append((total, size))
    n = 0
    for total, size in blocks:
        for _ in range(size):
            x[row[n]] = total / size + n * WIDTH
            n += 1
