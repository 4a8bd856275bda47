"""A loop in teams, scheduled: phases with their layouts, and where everything lives that a team keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.devices import Device
from jax_stitch.graph.model import TensorType
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.layouts import best_layout, team_threads
from jax_stitch.loops.phases import BarrierGroup, Phase, Target, barrier_groups, reads_by_level


@dataclass(frozen=True, slots=True)
class Kept:
    """An array that a team keeps: ``size`` elements, ``copies`` times (2 where the next iteration's values are written
    while this one's are read), from byte ``offset`` of the shared memory on, or in the scratch buffer ``scratch``.
    """

    node: int
    type: TensorType
    size: int
    copies: int
    offset: int = 0
    scratch: int | None = None

    @property
    def bytes(self) -> int:
        return self.size * self.copies * _width(self.type.dtype)


@dataclass(frozen=True, eq=False)
class Team:
    """How the teams of a loop go through an iteration. ``scratch`` are buffers of every team's kept arrays that do not
    fit into shared memory.
    """

    loop: TeamLoop
    threads: int
    vector: int
    """Places that a host compiler takes at a time."""
    levels: tuple[BarrierGroup, ...]
    kept: Mapping[int, Kept]
    shared_bytes: int
    scratch: tuple[TensorType, ...]


def _width(dtype: str) -> int:
    """Bytes of a kept element: of the type that it is computed in."""
    return {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8}.get(dtype, 4)


def team_schedule(loop: TeamLoop, device: Device, threads: int | None = None) -> Team:
    """The phases of ``loop`` laid out for ``device``; ``threads`` of a team where it shares a launch."""
    plain = barrier_groups(loop)
    count = threads or team_threads(loop, plain, device)
    levels = tuple(tuple(best_layout(loop, p, count, device) for p in level) for level in plain)
    kept, shared, scratch = _memory(loop, levels, device)
    return Team(loop, count, device.warp_size if device.target.lanes_are_vectors else 16, levels, kept, shared, scratch)


def _memory(
    loop: TeamLoop, levels: Sequence[BarrierGroup], device: Device
) -> tuple[dict[int, Kept], int, tuple[TensorType, ...]]:
    """Everything kept in shared memory, but for the largest arrays where that is too much; in global memory where the
    team is spread over blocks.
    """
    body = loop.body
    twice = _needs_two(loop, levels)
    written = {w.slot for level in levels for p in level for w in p.writes if w.target is Target.STORED}
    arrays = {i: b for i, b in loop.kept.items() if i not in loop.stored or i in written}
    found = {i: Kept(i, body[i].tensor, prod(inner_sizes(b)), 2 if i in twice else 1) for i, b in arrays.items()}
    limit = device.shared_per_block_optin if loop.blocks == 1 else 0
    scratch: list[TensorType] = []
    if not device.target.lanes_are_vectors:
        for kept in sorted(found.values(), key=lambda k: -k.bytes):
            if sum(_aligned(k.bytes) for k in found.values() if k.scratch is None) <= limit:
                break
            found[kept.node] = replace(kept, scratch=len(scratch))
            scratch.append(TensorType(_computed(kept.type.dtype), (loop.rows, kept.copies * kept.size)))
    offset = 0
    for kept in found.values():
        if kept.scratch is None:
            found[kept.node] = replace(kept, offset=offset)
            offset += _aligned(kept.bytes)
    return found, offset, tuple(scratch)


def _computed(dtype: str) -> str:
    return "f32" if dtype in ("bf16", "f16") else dtype


def _aligned(size: int) -> int:
    return ceil(size / 64) * 64


def _needs_two(loop: TeamLoop, levels: Sequence[BarrierGroup]) -> set[int]:
    """Carried values that some thread may still read when another writes the next one."""
    reads = reads_by_level(loop, levels)
    # Whether to go on is read before a step's first phase, with no barrier between.
    found = set() if loop.test is None else {loop.test}
    for k, c in enumerate(loop.carried):
        for number, level in enumerate(levels):
            for phase in level:
                if any(w.target is Target.CARRIED and w.slot == k for w in phase.writes):
                    later = [own and p is phase for n, p, own in reads[c.parameter] if n >= number]
                    later += [False for n, p, own in reads[c.parameter] if n == number and p is not phase]
                    if not all(own for own in later) or _in_pieces(phase, k):
                        found.add(c.parameter)
    return found


def _in_pieces(phase: Phase, carried: int) -> bool:
    return any(w.target is Target.CARRIED and w.slot == carried and w.shift for w in phase.writes)
