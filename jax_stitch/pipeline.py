"""The pipeline of stages: a captured function -> stitched kernels -> a function of arrays that runs them."""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hlo_parser import Module
from jax_stitch import graph as graphs
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.backend.compile import Kernel, compile_all
from jax_stitch.devices import Device
from jax_stitch.emit import KernelRefused, KernelSource, Reuse, Sources, emit
from jax_stitch.frontend.capture.captured import Captured
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.replay import Launch, LaunchedGraph, Segment, unsupported
from jax_stitch.fusion import FusionPlan, explore
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.weighing import estimated_seconds, seconds_left
from jax_stitch.graph.labels import label
from jax_stitch.ir.passes import Step, recording
from jax_stitch.latency import latency
from jax_stitch.latency.clusters import in_clusters
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.alike import Form, form_of, moved_to, outline
from jax_stitch.schedule.template import Template, check_names, kernel_name, parse_templates
from jax_stitch.schedule.work import work_of
from jax_stitch.util import log
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.strictness import strict_for

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StitchedKernel:
    """One kernel of a planned function, at every stage from schedule to source."""

    scheduled: ScheduledKernel
    source: KernelSource
    number: int
    """Index among the function's kernels."""
    launches: int
    """Launches per call of the function: more than one inside a loop."""
    measured: tuple[float, float] | None = None
    """With ``autotune``: seconds of one launch, and of XLA's own kernels for the same operations."""
    reuses: tuple[Reuse, ...] = ()
    """Inputs that the program around it allows it to overwrite; ``source.aliases`` has those that it does overwrite."""
    after: tuple[int, ...] = ()
    """Values that it waits for, so that what it overwrites has no later reader."""

    @property
    def bytes_read_again(self) -> int:
        """Return the bytes that its phases read beyond one read of each input: their own writes, and inputs again."""
        return self.scheduled.bytes_read - sum(node_bytes(self.scheduled.graph[i]) for i in self.scheduled.inputs)


Launcher = Callable[[StitchedKernel, Sequence[Any]], Sequence[Any]]
"""A function that runs a kernel on its inputs (arrays or tracers) and returns its outputs."""


@dataclass(frozen=True, eq=False)
class Stitched:
    """A captured function, planned and generated for ``device``, not yet compiled."""

    capture: Captured
    device: Device
    plan: FusionPlan
    kernels: tuple[StitchedKernel, ...]
    seconds: Mapping[str, float]
    refused: Mapping[int, str] = field(default_factory=dict)
    """The reason for each kernel that must not run, by number."""
    lasting: bool = True
    """True if another process would make the same. False if the compiler took too long for some kernel, since it may
    be faster the next time."""

    @functools.cached_property
    def captured_graph(self) -> graphs.Graph:
        """Return the graph of the program before planning, for questions about its instructions."""
        return graphs.build(module_of(self.capture.text))

    def passes(self) -> list[Step]:
        """Plan the program once more, and return each pass that ran."""
        with recording() as steps:
            explore(_graph_of(self.capture, module_of(self.capture.text)), self.device)
        return steps

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """Return the distinct sources to compile: equal kernels share one."""
        return tuple({id(k.source): k.source for k in self.kernels}.values())

    def compile(
        self, target: str, progress: Callable[[int, int], None] | None = None
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Compile the kernels, and return the function of the entry's parameters that runs them.

        ``target`` is "host" or an architecture such as "sm_90"; ``progress`` as in ``compile_all``.
        """
        return self.function(self.compile_kernels(target, progress))

    def compile_kernels(self, target: str, progress: Callable[[int, int], None] | None = None) -> tuple[Kernel, ...]:
        """Return the compiled kernels of ``sources``; the arguments are those of ``compile``."""
        if self.refused:
            raise AssertionError("; ".join(self.refused.values()))
        return compile_all(self.sources, target, progress)

    def function(self, kernels: Sequence[Kernel]) -> Callable[[Sequence[Any]], list[Any]]:
        """Return the function of the entry's parameters that runs these kernels, compiled from ``sources``."""
        return self.launched_by(launcher(dict(zip(map(id, self.sources), kernels, strict=True))))

    def launched_by(self, launch: Launcher) -> Callable[[Sequence[Any]], list[Any]]:
        """Return the function of the entry's parameters that runs each kernel on arrays with ``launch``."""
        from jax_stitch.frontend.replay import replay

        def run(at: Launch, arrays: Sequence[Any]) -> Sequence[Any]:
            # No wait is needed: XLA copies what would be overwritten too early.
            return launch(self.kernels[at.kernel], arrays[: len(at.inputs)])

        return replay(self.launched.run_by(run), self.capture.callbacks)

    @property
    def launched(self) -> LaunchedGraph:
        """Return the program with its kernels, as data."""
        by_plan: dict[int, list[StitchedKernel]] = {}
        for k in self.kernels:
            by_plan.setdefault(id(k.scheduled.graph), []).append(k)
        return _launched(self.plan, by_plan)


def launcher(compiled: Mapping[int, Kernel]) -> Launcher:
    """Return a launcher of kernels that are compiled, given by the ``id`` of their sources."""
    from jax_stitch.backend.launch import call

    def launch(kernel: StitchedKernel, arrays: Sequence[Any]) -> Sequence[Any]:
        run = compiled[id(kernel.source)]
        return call(run, kernel.source, *arrays, work=work_of(kernel.scheduled))

    return launch


def stitch_capture(
    capture: Captured,
    device: Device,
    planner: PlannerName = PlannerName.BEAM,
    templates: str = "",
    patience: Patience = ENDLESS,
) -> Stitched:
    """Parse, plan and generate the kernels of a captured function for ``device``; raise ``Unstitchable``.

    ``templates`` prescribe schedules for parts of kernels; raise ``TemplateError`` where one is not possible.
    The results of analyses stay cached for later work on the kernels, until ``results.forget``.
    """
    if capture.unsupported is not None:
        raise Unstitchable(capture.unsupported)
    seconds: dict[str, float] = {}
    start = time.perf_counter() - capture.seconds

    def lap(stage: str) -> None:
        nonlocal start
        now = time.perf_counter()
        seconds[stage] = now - start
        start = now

    text = capture.text
    lap("capture")
    module = module_of(text)
    lap("hlo_parser")
    if capture.is_partitioned or graphs.has_collectives(module):
        device = replace(device, blocks_may_wait=False)
    try:
        graph = _graph_of(capture, module)
    except graphs.GraphError as error:
        raise Unstitchable(f"its HLO cannot be rebuilt: {error}") from error
    missing = unsupported(graph)
    if missing:
        raise Unstitchable(f"its HLO cannot be rebuilt: {missing[0]}")
    lap("graph")
    plan = explore(graph, device, planner, patience)
    lap("explore")
    asked = parse_templates(templates)
    plan, kernels, refused = _weighed(plan, device, asked, patience)
    check_names(asked, [k.scheduled for k in kernels])
    lap("generate")
    stitched = Stitched(capture, device, plan, tuple(kernels), MappingProxyType(seconds), MappingProxyType(refused))
    log.planned(_logger, stitched)
    return stitched


def _graph_of(capture: Captured, module: Module) -> graphs.Graph:
    graph = graphs.build(module, capture.homes)
    return replace(graph, layouts=graph.layouts.with_homes(capture.homes))


MISJUDGED = 2.0
"""The factor by which a plan's kernels have to exceed the estimate of the whole plan, for alternatives to be tried."""

CLEARLY = 0.9
"""The share of the best plan's time below which an alternative replaces it."""


def _weighed(
    plan: FusionPlan, device: Device, asked: Sequence[Template], patience: Patience
) -> tuple[FusionPlan, list[StitchedKernel], dict[int, str]]:
    """Return the plan or the alternative whose kernels the latency-evaluator finds fastest, and these kernels."""
    best = (replace(plan, alternatives=()), *_generated(plan, device, asked))
    if asked or not plan.alternatives:
        return best
    taken = _seconds(best[1], device)
    if taken <= MISJUDGED * estimated_seconds(plan, device):
        return best
    least = taken + seconds_left(plan, device)
    for other in plan.alternatives:
        if patience.is_over:
            break
        with patience.spent():
            kernels, refused = _generated(other, device, asked)
            seconds = _seconds(kernels, device) + seconds_left(other, device)
        if seconds < CLEARLY * least:
            best, least = (other, kernels, refused), seconds
    return best


def _seconds(kernels: Sequence[StitchedKernel], device: Device) -> float:
    """Return the estimated seconds that a call of the function spends in stitched kernels."""
    each = {id(k.source): latency(k.scheduled, device).seconds for k in kernels}
    return sum(k.launches * each[id(k.source)] for k in kernels)


def _generated(
    plan: FusionPlan, device: Device, asked: Sequence[Template]
) -> tuple[list[StitchedKernel], dict[int, str]]:
    """Return the kernels of a plan, and the reason for each that must not run, by number."""
    kernels: list[StitchedKernel] = []
    refused: dict[int, str] = {}
    first: dict[Hashable, tuple[StitchedKernel, Form]] = {}
    sources = Sources()
    planned = list(_kernels(plan, 1))
    times = Counter(outline(patterns) for _, patterns, _ in planned)
    for owner, patterns, trips in planned:
        number = len(kernels)
        name = f"stitch_{number}_{kernel_name(owner.graph, patterns)}"
        form = None if asked or times[outline(patterns)] == 1 else form_of(owner.graph, patterns)
        if form is not None and form.key in first:
            alike, other = first[form.key]
            ids = dict(zip(other.nodes, form.nodes, strict=True))
            scheduled, source = moved_to(alike.scheduled, name, owner.graph, ids), alike.source
            if alike.number in refused:
                refused[number] = refused[alike.number]
        else:
            scheduled = in_clusters(schedule(owner.graph, patterns, device, name, templates=asked), device)
            try:
                source = emit(scheduled)
            except KernelRefused as refusal:
                if strict_for(None):
                    raise
                source, refused[number] = refusal.source, str(refusal)
            # Kernels may differ in what the text does not show: equal texts are compiled once.
            source = sources.first(source)
        kernels.append(StitchedKernel(scheduled, source, number, trips))
        if form is not None:
            first.setdefault(form.key, (kernels[-1], form))
    return kernels, refused


def _kernels(plan: FusionPlan, trips: int) -> Iterator[tuple[FusionPlan, Any, int]]:
    for kernel in plan.kernels:
        yield plan, kernel, trips
    for (node, _), child in plan.children.items():
        count = plan.graph[node].attributes.get("trip_count", 1)
        yield from _kernels(child, trips * count)


def _launched(plan: FusionPlan, by_plan: Mapping[int, Sequence[StitchedKernel]]) -> LaunchedGraph:
    children = {key: _launched(child, by_plan) for key, child in plan.children.items()}
    return LaunchedGraph(plan.graph, tuple(map(launch_of, by_plan.get(id(plan.graph), ()))), children)


def launch_of(kernel: StitchedKernel) -> Launch:
    """Return the launch of a kernel: its nodes, inputs and outputs in its graph."""
    nodes = frozenset(i for p in kernel.scheduled.parts for i in p.pattern.nodes)
    graph = kernel.scheduled.graph
    # Equal kernels share a source, so its name may stem from another kernel; the scope is the kernel's own.
    scope = label(kernel.source.name, [graph[i] for i in sorted(nodes)])
    # A value that one part rematerialises may be an input of another: XLA computes it, before both.
    own, (inputs, outputs) = nodes - set(kernel.scheduled.inputs), (kernel.scheduled.inputs, kernel.scheduled.outputs)
    return Launch(own, inputs, outputs, kernel.number, scope, work_of(kernel.scheduled), kernel.after)


def segment(kernel: StitchedKernel, launch: Launcher) -> Segment:
    """Return a kernel as a segment of its graph that ``launch`` runs."""
    return launch_of(kernel).segment(lambda arrays: launch(kernel, arrays))
