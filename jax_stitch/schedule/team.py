"""A loop in teams, scheduled: how sweeps are shared out, and where everything lives that a team caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.patterns.sweeps import BarrierGroup, Sweep, Target
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.graph.model import Node, TensorType
from jax_stitch.loops.teams.sharing import shared_out
from jax_stitch.loops.teams.sweeps import reads_by_group
from jax_stitch.util.values import replace

HALVES = frozenset({"bf16", "f16"})


class CachedArray(Struct, frozen=True):
    """An array that a team caches: ``size`` elements, ``copies`` times (2 where the next iteration's values are written
    while this one's are read), from byte ``offset`` of the shared memory on, or in the scratch buffer ``scratch``.
    """

    node: int
    type: TensorType
    size: int
    copies: int
    offset: int = 0
    scratch: int | None = None
    is_stored: bool = False
    """True if elements are as in buffers: halves in two bytes each."""

    @property
    def bytes(self) -> int:
        return self.size * self.copies * (2 if self.is_stored else _width(self.type.dtype))


@dataclass(frozen=True, eq=False)
class Team:
    """How the teams of a loop go through an iteration. ``scratch`` are buffers for those cached arrays of every team
    that do not fit into shared memory.
    """

    loop: TeamLoop
    threads: int
    vector: int
    """Places that a host compiler takes at a time."""
    groups: tuple[BarrierGroup, ...]
    cached: Mapping[int, CachedArray]
    shared_bytes: int
    """With those of loops in the body."""
    scratch: tuple[TensorType, ...]
    inner: Mapping[int, Team] = field(default_factory=dict)


def _width(dtype: str) -> int:
    """Return bytes of a cached element: of the type that it is computed in."""
    return {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8}.get(dtype, 4)


def team_schedule(loop: TeamLoop, device: Device, threads: int | None = None, offset: int = 0) -> Team:
    """Return the sweeps of ``loop`` shared out for ``device``; ``threads`` of a team where it shares a launch. Its
    memory is from ``offset`` on; that of loops in its body follows.
    """
    count, groups = shared_out(loop, device, threads)
    cached, shared, scratch = _memory(loop, groups, device, offset)
    inner: dict[int, Team] = {}
    for node, called in loop.inner.items():
        inner[node] = team_schedule(called, device, count, shared)
        shared = inner[node].shared_bytes
    vector = device.warp_size if device.target.lanes_are_vectors else 16
    return Team(loop, count, vector, groups, cached, shared, scratch, MappingProxyType(inner))


def _memory(
    loop: TeamLoop, groups: Sequence[BarrierGroup], device: Device, offset: int
) -> tuple[dict[int, CachedArray], int, tuple[TensorType, ...]]:
    """Return all cached arrays in shared memory, but for the largest where that is too much; in global memory where the
    team is spread over blocks.
    """
    body = loop.body
    twice = _needs_two(loop, groups)
    written = {w.slot for group in groups for p in group for w in p.writes if w.target is Target.INTERMEDIATE}
    bound = {
        i: b for i, b in loop.cached.items() if i not in loop.placed and (i not in loop.intermediates or i in written)
    }
    stored = {i for i in bound if i in loop.intermediates and body[i].op != "scatter" and _is_stored(body[i], device)}
    cached = {
        i: CachedArray(i, body[i].tensor, prod(inner_sizes(b)), 2 if i in twice else 1, is_stored=i in stored)
        for i, b in bound.items()
    }
    limit = device.shared_per_block_optin if loop.blocks == 1 else 0
    scratch: list[TensorType] = []
    if not device.target.lanes_are_vectors:
        for array in sorted(cached.values(), key=lambda k: -k.bytes):
            if sum(_aligned(k.bytes) for k in cached.values() if k.scratch is None) <= limit:
                break
            cached[array.node] = replace(array, scratch=len(scratch), is_stored=False)
            scratch.append(TensorType(_computed(array.type.dtype), (loop.rows, array.copies * array.size)))
    for array in cached.values():
        if array.scratch is None:
            cached[array.node] = replace(array, offset=offset)
            offset += _aligned(array.bytes)
    return cached, offset, tuple(scratch)


def _is_stored(node: Node, device: Device) -> bool:
    """Return whether a value's elements are cached as in buffers: where tensor cores read them so."""
    return node.tensor.dtype in HALVES and device.matrix_unit(node.tensor.dtype) is not None


def _computed(dtype: str) -> str:
    return "f32" if dtype in HALVES else dtype


def _aligned(size: int) -> int:
    return ceil(size / 64) * 64


def _needs_two(loop: TeamLoop, groups: Sequence[BarrierGroup]) -> set[int]:
    """Return carried values that some thread may still read when another writes the next one."""
    reads = reads_by_group(loop, groups)
    # Whether to go on is read before a step's first sweep, with no barrier between.
    doubled = set() if loop.test is None else {loop.test}
    for k, c in enumerate(loop.carried):
        for number, group in enumerate(groups):
            for sweep in group:
                if any(w.target is Target.CARRIED and w.slot == k for w in sweep.writes):
                    later = [own and p is sweep for n, p, own in reads[c.parameter] if n >= number]
                    later += [False for n, p, own in reads[c.parameter] if n == number and p is not sweep]
                    if not all(own for own in later) or _in_pieces(sweep, k):
                        doubled.add(c.parameter)
    return doubled


def _in_pieces(sweep: Sweep, carried: int) -> bool:
    return any(w.target is Target.CARRIED and w.slot == carried and w.shift for w in sweep.writes)
