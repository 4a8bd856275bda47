"""What the threads of a loop do: the instructions of an iteration, as often as it runs."""

from __future__ import annotations

from collections import defaultdict
from math import ceil, prod

from jax_stitch.analysis.support import is_free
from jax_stitch.devices import Device
from jax_stitch.graph.model import TensorType
from jax_stitch.ir.nest import Nest
from jax_stitch.ir.team import TeamLoop
from jax_stitch.latency.work import ARITHMETIC, GROUP, KEEP, LOAD, STORE, TEAM, TURN, Work, combiner, operation
from jax_stitch.loops.layouts import clocks
from jax_stitch.loops.nest_walk import elements_of
from jax_stitch.schedule.model import Part
from jax_stitch.schedule.team import Team


def thread_loop_work(part: Part, nest: Nest, device: Device) -> Work:
    """A loop whose rows have a thread each. Of a loop of unknown length ``Nest.steps`` iterations are counted."""
    found: Work = defaultdict(float)
    graph, outside = nest.graph, min((c.parameter for level in nest.loops for c in level.carried), default=0)
    rows = nest.rows if nest.rows > 1 else device.warp_size  # One row alone has a vector's instructions to itself.
    for node in graph.nodes:
        if not isinstance(node.type, TensorType) or is_free(node):
            continue
        times = rows * max(1, node.type.size // nest.rows) * (nest.steps if node.id >= outside else 1)
        if node.id < outside and node.id not in nest.inside:
            continue
        for kind, weight in operation(graph, node):
            found[kind] += weight * times
        if node.op == "reduce":
            for kind, weight in combiner(node):
                found[kind] += weight * rows * nest.steps * max(1, graph[node.operands[0]].tensor.size // nest.rows)
        elif node.op == "dot":
            found[ARITHMETIC] += 2 * times * _contracted(nest, node.id)
    for level in nest.loops:
        for c in level.carried:
            found[KEEP] += 2 * rows * nest.steps * len(elements_of(nest.bindings[c.parameter], nest.rows))
    groups = part.split.blocks * part.split.sequence
    found[TURN] += groups * nest.steps
    found[GROUP] += groups
    found[STORE] += sum(graph[o.node].tensor.size for o in nest.outputs)
    found[LOAD] += sum(graph[i].tensor.size for i in nest.inputs)
    return found


def _contracted(nest: Nest, dot: int) -> int:
    node = nest.graph[dot]
    dims = nest.graph[node.operands[0]].tensor.dims
    return prod(dims[d] for d in node.attributes.get("lhs_contracting_dims", ()))


def team_work(team: Team, loop: TeamLoop, device: Device) -> Work:
    """A loop that teams of threads run: by the clocks that its layouts were chosen by, for each warp of a team."""
    one = sum(clocks(loop, phase, team.threads, device) for level in team.levels for phase in level)
    warps = ceil(team.threads / device.warp_size) if not device.target.lanes_are_vectors else 1
    total = loop.trips * loop.rows * loop.blocks * one * device.warp_size * warps
    barriers = loop.trips * loop.rows * len(team.levels)
    return defaultdict(float, {TEAM: total, TURN: barriers, GROUP: loop.rows})
