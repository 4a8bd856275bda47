"""Which loops run in teams: those that are estimated faster so than as XLA runs them."""

from __future__ import annotations

from math import ceil, prod
from types import MappingProxyType

from jax_stitch.devices import Device
from jax_stitch.explore.hoist import with_simple_products, without_sums
from jax_stitch.explore.layouts import best_layout, clocks, team_threads
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.phases import levels_of
from jax_stitch.explore.sink import with_sunk_producers
from jax_stitch.explore.support import ELEMENTWISE, HEAVY, is_free
from jax_stitch.explore.team import NotForTeams, TeamLoop, one_literal, steps_of, team_loop
from jax_stitch.explore.thread_loops import ThreadLoops, thread_loops
from jax_stitch.graph.model import Graph, Node

BARRIER_CLOCKS = {"cuda": 60, "cpu": 0}

KERNEL_SECONDS = {"cuda": 2.5e-6, "cpu": 0.15e-6}
"""What each of XLA's kernels in the body of a loop takes at least: a launch; on a CPU a call."""

PRODUCT_SHARE = {"cuda": 0.5, "cpu": 0.95}
"""The share of its f32 operations per second that a device reaches in XLA's matrix products of this size."""

VECTOR_PRODUCT_CLOCK = {"rows": 8.0, "columns": 4.0, "fused": 0.6}
"""Multiplications per clock of a CPU, one core of it, in XLA's products of a matrix and a vector: summed along the
matrix's rows, along its columns, or inside a fusion, element by element. Measured.
"""

MARGIN = {"cuda": 1.0, "cpu": 1.75}
"""By what factor a team has to be estimated faster: on a CPU, where little is gained by not launching, for sure."""


def stitched_loops(graph: Graph, device: Device) -> ThreadLoops:
    """A pattern for every loop of ``graph`` that is worth a kernel: a thread for each row, else a team of threads."""
    alone = thread_loops(graph, device)
    taken = {i for p in alone.patterns for i in p.nodes}
    found, refused = list(alone.patterns), dict(alone.refused)
    for node in graph.nodes:
        if node.op != "while" or node.id in taken:
            continue
        try:
            loop = team_loop(graph, node, device)
            if not is_worth(loop, node.graphs["body"], device):
                raise NotForTeams("a loop whose steps are faster as XLA's kernels")
        except NotForTeams as why:
            refused[node.id] = f"{refused[node.id]}; {why}" if node.id in refused else str(why)
            continue
        refused.pop(node.id, None)
        inputs = set(loop.arrays.values()) | {c.initial for c in loop.carried if one_literal(graph, c.initial) is None}
        outputs = [c.result for c in loop.carried if c.result is not None] + [s.result for s in loop.stacked]
        nodes = frozenset({node.id, *graph.users[node.id]})
        found.append(Pattern(nodes, loop.rows, {}, tuple(sorted(inputs)), tuple(sorted(outputs)), team=loop))
    return ThreadLoops(tuple(found), MappingProxyType(refused))


def prepared(graph: Graph, device: Device) -> Graph:
    """The graph with the loops that no thread can run by itself, and that are worth running in teams, made fit for it:
    the sums that they carry taken out, and what is made for their steps taken in.
    """
    if not _loops(graph):
        return graph
    found = with_simple_products(graph)
    single = {i for p in thread_loops(found, device).patterns for i in p.nodes}
    fit = False
    for number, skipped in enumerate([n.id in single for n in found.nodes if n.op == "while"]):
        here = _loops(found)[number]
        if skipped:
            continue
        changed = without_sums(found, here.id) or found
        changed = with_sunk_producers(changed, _loops(changed)[number].id)
        try:
            if is_worth(team_loop(changed, _loops(changed)[number], device), here.graphs["body"], device):
                found, fit = changed, True
        except NotForTeams:
            continue
    # Products that XLA has joined stay so where no loop gains from having them apart.
    return found if fit else graph


def _slowness(body: Graph, dot: Node, device: Device) -> float:
    """How much longer a product takes than its operations at the device's peak."""
    sizes = [body[o].tensor.size for o in dot.operands]
    if device.kind == "cpu" and min(sizes) <= prod(steps_of(body, dot)):
        matrix = sizes.index(max(sizes))
        side = ("lhs_contracting_dims", "rhs_contracting_dims")[matrix]
        by_columns = tuple(dot.attributes.get(side, ())) == (0,)
        fused = sum(n.kernel == dot.kernel for n in body.nodes) > 1
        way = "fused" if fused else ("columns" if by_columns else "rows")
        return device.multiprocessors * device.fp32_lanes / VECTOR_PRODUCT_CLOCK[way]
    return 1 / PRODUCT_SHARE[device.kind]


def _loops(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "while"]


def is_worth(loop: TeamLoop, body: Graph, device: Device) -> bool:
    """Whether a loop is faster in teams than with the kernels that XLA has for ``body``."""
    return MARGIN[device.kind] * team_seconds(loop, device) <= xla_seconds(body, device)


def team_seconds(loop: TeamLoop, device: Device) -> float:
    """One iteration of all teams of ``loop``."""
    plain = levels_of(loop)
    threads = team_threads(loop, plain, device)
    total = 0.0
    for level in plain:
        total += sum(clocks(loop, best_layout(loop, p, threads, device), threads, device) for p in level)
        total += BARRIER_CLOCKS[device.kind]
    return total * ceil(loop.rows / device.multiprocessors) / (device.clock_ghz * 1e9)


def xla_seconds(body: Graph, device: Device) -> float:
    """One iteration of a loop as XLA runs it: its kernels one after the other."""
    kernels = {n.kernel for n in body.nodes if n.kernel and not is_free(n)}
    products = elementwise = 0.0
    for n in body.nodes:
        if n.op == "dot":
            products += n.tensor.size * prod(steps_of(body, n)) * _slowness(body, n, device)
        elif n.op == "reduce":
            elementwise += body[n.operands[0]].tensor.size * (device.warp_size if device.kind == "cpu" else 1)
        elif n.op in ELEMENTWISE:
            elementwise += n.tensor.size * (10 if n.op in HEAVY else 1)
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    if device.kind == "cpu":  # One core does what is no product, and its reductions element by element.
        elementwise *= device.multiprocessors
    return len(kernels) * KERNEL_SECONDS[device.kind] + (products + elementwise) / rate
