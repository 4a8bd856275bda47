"""Random programs by what kernels are wanted of them, and those kernels, in whatever way they are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from unittest import mock

from jax_stitch import devices, pipeline
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion import planner
from jax_stitch.fusion.graph_passes import EXPANDING
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.cost import team_cost
from jax_stitch.loops.straight import straight_patterns
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import Stitched
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.model import LoopPass, Part, SortPass
from tests.drawn import Program, program_of
from tests.fusion import forced

ROWS = tuple(map(forced.device, ("cpu", "h200", "t4", "a100")))
SMALL = forced.device("h200", multiprocessors=2, shared_per_block=1024, shared_per_block_optin=1024)
"""Little shared memory and few blocks: a team's arrays are in global memory, and it does several rows."""
SPREAD = forced.device("h200", multiprocessors=3)
"""A single team's work is spread over its blocks."""
TEAMS = (*[ROWS[0]] * 2, ROWS[1], SMALL, SPREAD)


@dataclass(frozen=True)
class Way:
    """What is drawn, and how its kernels are made."""

    mix: str
    devices: tuple[Device, ...] = ROWS
    teams: bool = False
    straight: bool = False
    ends: bool = False
    clusters: bool = False
    optimized: bool = False
    """From the HLO that XLA makes of it: some scatters get their form there."""


WAYS = (
    Way("rows"),
    Way("sorts"),
    Way("scans"),
    Way("places"),
    Way("normalised", (ROWS[1],), clusters=True),
    Way("loops"),
    Way("products", (ROWS[0],), straight=True),
    Way("recurrences", TEAMS, teams=True),
    Way("recurrences", TEAMS, teams=True, ends=True),
    Way("loops with products", TEAMS, teams=True),
    Way("loops", TEAMS, teams=True),
    Way("loops", ends=True),
    Way("scatters", TEAMS, teams=True, optimized=True),
)


@dataclass(frozen=True)
class Drawn:
    """A random program and its kernels."""

    seed: int
    way: Way
    device: Device
    program: Program
    kernels: Stitched


def drawn(seed: int) -> Drawn:
    """The program of a seed. Needs x64."""
    way, rng = WAYS[seed % len(WAYS)], Random(seed)
    made = program_of(rng, way.mix, steps=4 + rng.randrange(10), max_size=3000, ends=way.ends)
    target, order = rng.choice(way.devices), rng.choice((None, rng.randrange(100)))
    with ExitStack() as ways:
        ways.enter_context(forced.everything_pays(order, straight=way.straight))
        if way.teams:
            ways.enter_context(_in_teams(target))
        if way.straight:
            ways.enter_context(_straight_pays())
        if way.clusters:
            ways.enter_context(_in_clusters(rng))
        if way.optimized:
            kernels = pipeline.stitch_capture(capture(made.fun, made.args, devices.get("cpu")), target)
        else:
            kernels = forced.stitched_now(forced.hlo_of(made.fun, *made.args), target)
    return Drawn(seed, way, target, made, kernels)


@contextmanager
def _in_teams(target: Device) -> Iterator[None]:
    """Loops in teams, and spread ones where that is what the device is for."""
    with ExitStack() as ways:
        for patch in (
            mock.patch.object(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {})),
            mock.patch.object(team_choice, "is_worth", lambda *_: True),
            mock.patch.object(team_choice, "SPREAD_GAIN", 0.0 if target is SPREAD else 1e9),
            mock.patch.object(team_cost, "GRID_BARRIER_SECONDS", 0.0),
            mock.patch.object(EXPANDING["expand-small-products"], "needs", lambda _: False),
        ):
            ways.enter_context(patch)
        yield


@contextmanager
def _straight_pays() -> Iterator[None]:
    """All straight code that a kernel can hold is one."""

    def seconds(plan: FusionPlan, _device: Device) -> float:
        return -float(sum(isinstance(p.loop, TeamLoop) for kernel in plan.kernels for p in kernel))

    straight = mock.patch.object(
        planner, "_straight", lambda graph, loops, d: straight_patterns(graph, loops.patterns, d)
    )
    with straight, mock.patch.object(planner, "call_seconds", seconds):
        yield


@contextmanager
def _in_clusters(rng: Random) -> Iterator[None]:
    """Rows that clusters of blocks take together, or that are copied to shared memory."""

    def laid_out(kernel: ScheduledKernel, device: Device) -> ScheduledKernel:
        patterns = [p.pattern for p in kernel.parts]
        if rng.random() < 0.3:
            return schedule(kernel.graph, patterns, device, kernel.name, fetch=True)
        return schedule(kernel.graph, patterns, device, kernel.name, cluster=rng.choice((2, 2, 4, 8)))

    with mock.patch.object(pipeline, "in_clusters", laid_out):
        yield


def kind(part: Part) -> str:
    """What a pattern is."""
    if part.team is not None:
        loop = part.team.loop
        if loop.trips == 1:
            return "straight code"
        if any(n.op == "scatter" for n in loop.body.nodes):
            return "loop in teams with a scatter"
        if loop.blocks > 1:
            return "loop in a team over blocks"
        return "loop in teams" if loop.trips is not None else "loop in teams of unknown length"
    if part.pattern.loop is not None:
        return "loop in threads"
    if any(isinstance(s, SortPass) for s in part.passes):
        return "rows sorted"
    if any(isinstance(s, LoopPass) and s.scans for s in part.passes):
        return "rows scanned"
    levels = [c for c in ("cluster", "block", "warp", "thread") if c in part.composition]
    return f"rows, {levels[0]} composition" if levels else "rows"


def traits(made: Stitched) -> Iterator[str]:
    """What else is particular, of each kernel or pattern: they may have several."""
    for kernel in made.kernels:
        k = kernel.scheduled
        if any(len(phase) > 1 for phase in k.phases):
            yield "kernel packed of several patterns"
        if len(k.phases) > 1:
            yield "kernel of several phases"
        for part in k.parts:
            if part.caches:
                yield "pattern with values in shared memory"
            if part.vectors:
                yield "pattern with vectors"
            if part.team is not None and any(n.op == "dot" for n in part.team.loop.body.nodes):
                yield "team with a product"
            if any(isinstance(s, LoopPass) for s in part.passes) and len(part.passes) > 2:
                yield "pattern of several stages"
