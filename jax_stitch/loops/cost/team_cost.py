"""Estimates of the time of a loop in teams or in threads, and whether it is faster than XLA's."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import ceil

from jax_stitch.analysis.patterns.nest import LIKELY_TRIPS, UNKNOWN_TRIPS, Nest
from jax_stitch.analysis.patterns.sweeps import guarded_from
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.patterns.traffic import BYTES_PER_THREAD
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import EXPANDED, ONE_KERNEL, STREAMED, Graph, Node
from jax_stitch.loops.cost.chains import chain, own_clocks
from jax_stitch.loops.cost.xla_cost import far_seconds, step_seconds, work_seconds, xla_seconds
from jax_stitch.loops.teams.sharing import SCALAR_CLOCKS, VECTOR_CLOCKS, clocks, shared_out
from jax_stitch.loops.teams.team import elements_of

GRID_BARRIER_SECONDS = 1.1e-6
"""Seconds of a barrier of all blocks of a launch. Measured on an H200."""

CALL_SECONDS = 2.5e-7
"""Seconds of a kernel call on a CPU."""


def is_worth(loop: TeamLoop, node: Node, body: Graph, device: Device) -> bool:
    """Return whether a ``while`` node is faster in teams than with the kernels that XLA has for ``body``."""
    if STREAMED in node.attributes or (EXPANDED in node.attributes and body is node.graphs["body"]):
        return True
    if device.target.inlines_loops and ONE_KERNEL in node.attributes:
        once = CALL_SECONDS + _ends_seconds(loop, device)
        return team_seconds(loop, device) + once / loop.likely_trips <= step_seconds(node, body, device)
    work = work_seconds(body, body.nodes, device)
    calls = xla_seconds(body, device) - work
    return team_seconds(loop, device) <= work / device.target.loop_margin + calls


def _ends_seconds(loop: TeamLoop, device: Device) -> float:
    """Return the seconds to copy values updated in place to a team's memory and back, without XLA's own copy."""
    return sum(2 * node_bytes(loop.body[c.next]) for c in loop.carried if c.placed) / device.memory_bandwidth


def team_seconds(loop: TeamLoop, device: Device) -> float:
    """Return the seconds of one iteration of all teams of ``loop``."""
    return _seconds.get(loop.body, (loop.inside, device), lambda: _team_seconds(loop, device))


_seconds: Results[tuple[Hashable, Device], float] = Results()


def _team_seconds(loop: TeamLoop, device: Device) -> float:
    threads, groups = shared_out(loop, device)
    total = 0.0
    first = guarded_from(loop, groups)
    for number, group in enumerate(groups):
        share = loop.share if number >= first else 1.0
        total += share * sum(clocks(loop, p, threads, device) for p in group)
        total += device.target.barrier_clocks if loop.blocks == 1 else GRID_BARRIER_SECONDS * device.clock_ghz * 1e9
    if device.target.lanes_are_vectors:
        total = max(total, chain(loop.body, zip(loop.body.parameters, loop.body.results, strict=False), own_clocks))
    return total * ceil(loop.rows / device.multiprocessors) / (device.clock_ghz * 1e9)


TOGETHER = 1.75
"""By what factor more a product takes on several cores than each core's share alone: they share what is far, and wait
for the slowest. Measured with 64 to 512 rows by 256 to 2,048 columns on two cores.
"""


def straight_team_seconds(loop: TeamLoop, device: Device) -> float:
    """Return the seconds of a loop of one step, on as many cores of a CPU as the launcher takes for its work, and not
    less than memory takes for its arrays.
    """
    cores = min(device.multiprocessors, max(1, loop.rows * elements_of(loop) // BYTES_PER_THREAD))
    waves = ceil(loop.rows / cores) / ceil(loop.rows / device.multiprocessors)
    moved = sum(node_bytes(loop.body[i]) for i in (*loop.arrays, *(s.update for s in loop.stacked)))
    together = TOGETHER if cores > 1 else 1.0
    return max(together * waves * team_seconds(loop, device), far_seconds(moved, device))


ROWS_OF_A_CORE = 256
"""Rows of loops in threads for which another core is used."""

ROWS_OF_A_BLOCK = 4096
"""About the most rows of a block of a CPU, which computes once what is uniform over its rows. Fewer rows are spread
over as many blocks as there are cores, see ``schedule.split.loop_split``.
"""


def nest_seconds(nest: Nest, device: Device) -> float:
    """Return the seconds of all iterations of loops in threads of a CPU, in vectors of rows or of one row alone: the
    work of all cores.
    """
    steps = nest.steps / len(nest.loops)
    each = SCALAR_CLOCKS if nest.rows == 1 else VECTOR_CLOCKS
    vectors = device.clocks_per_vector * ceil(nest.rows / device.warp_size) * _clocks(each, nest.varying)
    rows = min(ROWS_OF_A_BLOCK, ceil(nest.rows / device.multiprocessors))
    shared = ceil(nest.rows / rows) * _clocks(SCALAR_CLOCKS, nest.uniform)
    carried = ((c.parameter, c.next) for loop in nest.loops for c in loop.carried)
    waiting = chain(nest.graph, carried, own_clocks) if nest.rows == 1 else 0.0
    return steps * max(vectors + shared, waiting) / (device.clock_ghz * 1e9)


def _clocks(each: tuple[float, float], work: tuple[float, float]) -> float:
    return each[0] * work[0] + each[1] * work[1]


def nests_gain(graph: Graph, nodes: Iterable[Node], nest: Nest, device: Device) -> float:
    """Return the speed-up of the loops ``nodes`` in a CPU's threads, as ``nest``, over XLA's kernels."""
    taken = 0.0
    for node in nodes:
        taken += step_seconds(node, node.graphs["body"], device) * (
            node.attributes.get("trip_count") or node.attributes.get(LIKELY_TRIPS, UNKNOWN_TRIPS)
        )
    cores = max(1, min(device.multiprocessors, nest.rows // ROWS_OF_A_CORE))
    return taken / (nest_seconds(nest, device) / cores)
