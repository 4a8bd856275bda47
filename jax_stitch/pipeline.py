"""All stages in a row: a captured function -> stitched kernels -> a function of arrays that runs them."""

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
from jax_stitch.capture.captured import Captured
from jax_stitch.capture.errors import Unstitchable
from jax_stitch.capture.module import module_of
from jax_stitch.compile import Kernel, compile_all
from jax_stitch.devices import Device
from jax_stitch.emit import KernelRefused, KernelSource, Reuse, Sources, emit
from jax_stitch.fusion import FusionPlan, explore
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.weighing import estimated_seconds, seconds_left
from jax_stitch.graph.labels import label
from jax_stitch.latency import latency
from jax_stitch.latency.clusters import in_clusters
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.options.strictness import strict_for
from jax_stitch.passes import Step, recording
from jax_stitch.replay import Launch, LaunchedGraph, Segment, unsupported
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.alike import Form, form_of, moved_to, outline
from jax_stitch.schedule.template import Template, check_names, kernel_name, parse_templates
from jax_stitch.schedule.work import work_of
from jax_stitch.util import log

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StitchedKernel:
    """One kernel of a planned function, at every stage from schedule to source."""

    scheduled: ScheduledKernel
    source: KernelSource
    number: int
    """Among the function's kernels."""
    launches: int
    """Per call of the function: more than one inside a loop."""
    measured: tuple[float, float] | None = None
    """With ``autotune``: seconds of a launch, and of XLA's own kernels for the same operations."""
    reuses: tuple[Reuse, ...] = ()
    """What it may write over, as far as the program around it goes; ``source`` says what it does."""
    after: tuple[int, ...] = ()
    """Values that it waits for, so that nobody reads any more what it overwrites."""

    @property
    def bytes_read_again(self) -> int:
        """What its phases read beyond each of its inputs once: what they wrote themselves, and inputs read again."""
        return self.scheduled.bytes_read - sum(node_bytes(self.scheduled.graph[i]) for i in self.scheduled.inputs)


Launcher = Callable[[StitchedKernel, Sequence[Any]], Sequence[Any]]
"""Runs a kernel on its inputs, arrays or tracers, and returns its outputs."""


@dataclass(frozen=True, eq=False)
class Stitched:
    """A captured function, planned and generated for ``device``, not yet compiled."""

    capture: Captured
    device: Device
    plan: FusionPlan
    kernels: tuple[StitchedKernel, ...]
    seconds: Mapping[str, float]
    refused: Mapping[int, str] = field(default_factory=dict)
    """Kernels that must not run, by number, and why."""
    lasting: bool = True
    """Whether another process would make the same: not where a compiler took too long for some kernel, as it need not
    the next time."""

    @functools.cached_property
    def captured_graph(self) -> graphs.Graph:
        """The program before it was planned, for whoever asks about its instructions."""
        return graphs.build(module_of(self.capture.text))

    def passes(self) -> list[Step]:
        """Plan the program once more, and return each pass that ran."""
        with recording() as steps:
            explore(_graph_of(self.capture, module_of(self.capture.text)), self.device)
        return steps

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """What there is to compile: one source for kernels that are alike."""
        return tuple({id(k.source): k.source for k in self.kernels}.values())

    def compile(
        self, target: str, progress: Callable[[int, int], None] | None = None
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """The function of the entry's parameters with its kernels compiled.

        ``target`` is "host" or an architecture such as "sm_90"; ``progress`` as in ``compile_all``.
        """
        return self.function(self.compile_kernels(target, progress))

    def compile_kernels(self, target: str, progress: Callable[[int, int], None] | None = None) -> tuple[Kernel, ...]:
        """The kernels of ``sources``; the arguments are those of ``compile``."""
        if self.refused:
            raise AssertionError("; ".join(self.refused.values()))
        return compile_all(self.sources, target, progress)

    def function(self, kernels: Sequence[Kernel]) -> Callable[[Sequence[Any]], list[Any]]:
        """The function of the entry's parameters that runs these kernels, compiled from ``sources``."""
        return self.launched_by(launcher(dict(zip(map(id, self.sources), kernels, strict=True))))

    def launched_by(self, launch: Launcher) -> Callable[[Sequence[Any]], list[Any]]:
        """The function of the entry's parameters, with ``launch`` to run a kernel on arrays."""
        from jax_stitch.replay import replay

        def run(at: Launch, arrays: Sequence[Any]) -> Sequence[Any]:
            # It need not wait: XLA copies what would be overwritten too early.
            return launch(self.kernels[at.kernel], arrays[: len(at.inputs)])

        return replay(self.launched.run_by(run), self.capture.callbacks)

    @property
    def launched(self) -> LaunchedGraph:
        """The program with its kernels, as data."""
        by_plan: dict[int, list[StitchedKernel]] = {}
        for k in self.kernels:
            by_plan.setdefault(id(k.scheduled.graph), []).append(k)
        return _launched(self.plan, by_plan)


def launcher(compiled: Mapping[int, Kernel]) -> Launcher:
    """Runs kernels that are compiled, by the identity of their sources."""
    from jax_stitch.launch import call

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
    """Parses, plans and generates the kernels of a captured function for ``device``; raises ``Unstitchable``.

    ``templates`` are schedules that parts of kernels have to have; raises ``TemplateError`` where one is not possible.
    What is found out of graphs on the way is kept for what is done with the kernels next, until ``results.forget``.
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
"""By what factor a plan's kernels have to take longer than the whole plan was estimated, for others to be looked at."""

CLEARLY = 0.9
"""What another plan has to take of that."""


def _weighed(
    plan: FusionPlan, device: Device, asked: Sequence[Template], patience: Patience
) -> tuple[FusionPlan, list[StitchedKernel], dict[int, str]]:
    """The plan, or one of its alternatives, by what the latency-evaluator reads in their kernels; and these."""
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
    """Of a call, in stitched kernels."""
    each = {id(k.source): latency(k.scheduled, device).seconds for k in kernels}
    return sum(k.launches * each[id(k.source)] for k in kernels)


def _generated(
    plan: FusionPlan, device: Device, asked: Sequence[Template]
) -> tuple[list[StitchedKernel], dict[int, str]]:
    """The kernels of a plan; and of those that must not run, by number, why."""
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
            # Kernels unlike in what the text does not show: they are compiled once.
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
    """Where a kernel stands in its graph."""
    nodes = frozenset(i for p in kernel.scheduled.parts for i in p.pattern.nodes)
    graph = kernel.scheduled.graph
    # Kernels that are alike share a source, so the name is that of another's place; the scope is the kernel's own.
    scope = label(kernel.source.name, [graph[i] for i in sorted(nodes)])
    # What a part rematerialises may be read by another: that is made by XLA, before both.
    own, (inputs, outputs) = nodes - set(kernel.scheduled.inputs), (kernel.scheduled.inputs, kernel.scheduled.outputs)
    return Launch(own, inputs, outputs, kernel.number, scope, work_of(kernel.scheduled), kernel.after)


def segment(kernel: StitchedKernel, launch: Launcher) -> Segment:
    """A kernel as a part of its graph that ``launch`` runs."""
    return launch_of(kernel).segment(lambda arrays: launch(kernel, arrays))
