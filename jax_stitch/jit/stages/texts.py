"""The result of each stage as text, readable and comparable line by line with that of another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.emit import for_target, kernel_of
from jax_stitch.graph.text import graph_lines, node_line
from jax_stitch.jit.stages.names import PASSES, STAGES
from jax_stitch.jit.stages.passes import pass_lines
from jax_stitch.kernel.text import text
from jax_stitch.schedule.template import templates_of

if TYPE_CHECKING:
    from jax_stitch.analysis.maps import Index
    from jax_stitch.analysis.patterns.pattern import Pattern
    from jax_stitch.fusion import FusionPlan
    from jax_stitch.pipeline import Stitched
    from jax_stitch.schedule import ScheduledKernel
    from jax_stitch.schedule.model import RowPass


def stage_texts(stitched: Stitched) -> Mapping[str, Callable[[], str]]:
    """Return, by the name of each stage and of ``PASSES``, a function that returns its text."""
    texts = (
        lambda: stitched.capture.text,
        lambda: _text(graph_lines(stitched.captured_graph)),
        lambda: _text(_plan_lines(stitched.plan)),
        lambda: _text(line for k in stitched.kernels for line in _schedule_lines(k.scheduled, k.launches)),
        lambda: "\n".join(text(for_target(k.scheduled, kernel_of(k.scheduled))) for k in stitched.kernels),
        lambda: "\n".join(f"// {k.source.name}\n{k.source.text}" for k in stitched.kernels),
    )
    passes = {PASSES: lambda: _text(pass_lines(stitched.passes()))}
    return MappingProxyType(dict(zip(STAGES, texts, strict=True)) | passes)


def _text(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _plan_lines(plan: FusionPlan) -> Iterator[str]:
    """Yield the plan, each kernel's patterns, and the graph with each operation's kernel. XLA's kernels are ``xla``."""
    yield from str(plan).splitlines()
    where: dict[int, list[str]] = {}
    for k, kernel in enumerate(plan.kernels):
        for n, pattern in enumerate(kernel):
            yield f"  {_pattern_line(k, n, pattern)}"
            for i in sorted(pattern.inside):
                where.setdefault(i, []).append(f"{k}.{n}{' copied' if i in pattern.copies else ''}")
    for node in plan.graph.nodes:
        whose = ", ".join(where.get(node.id, ())) or (f"xla {node.kernel}" if node.kernel else "")
        yield f"  {node_line(node)}" + (f"  // {whose}" if whose else "")
    for (called_by, name), child in plan.children.items():
        yield f"\n// {name} of %{called_by}"
        yield from _plan_lines(child)


def _pattern_line(kernel: int, number: int, pattern: Pattern) -> str:
    match pattern.loop:
        case Nest():
            what = "a loop in threads"
        case TeamLoop():
            what = "a loop in teams"
        case None:
            what = "straight code"
    reads, writes = (" ".join(f"%{i}" for i in ids) for ids in (pattern.inputs, pattern.outputs))
    return f"pattern {kernel}.{number}: {what}, {pattern.rows} rows, reads {reads or 'nothing'}, writes {writes}"


def _schedule_lines(kernel: ScheduledKernel, launches: int) -> Iterator[str]:
    first, *parts = str(kernel).splitlines()
    yield first + (f", launched {launches} times" if launches != 1 else "")
    for line, part, template in zip(parts, kernel.parts, templates_of(kernel), strict=True):
        yield line
        yield f"    template {template}"
        yield from (f"    {number}: {_pass_line(row_pass)}" for number, row_pass in enumerate(part.passes))
        yield from (f"    %{s.node} is cached in {s.kind.value}" for s in part.storage.values())
        yield from (f"    {_element(s.node, s.index)} is cached in {s.kind.value}" for s in part.own_storage.values())


def _pass_line(row_pass: RowPass) -> str:
    """Return a row pass with its fields that are not empty, such as ``LoopPass size=256 reduces=%3``."""
    shown = ((name, _field(name, getattr(row_pass, name))) for name in row_pass.__struct_fields__)
    return " ".join([type(row_pass).__name__, *(f"{name}={text}" for name, text in shown if text)])


def _field(name: str, value: object) -> str:
    if isinstance(value, tuple) and name not in ("reduced", "breaks"):
        return ",".join(_element(*v) if isinstance(v, tuple) else f"%{v}" for v in value)
    if name in ("reduce", "sort"):
        return f"%{value}"
    return "" if value in (False, ()) or (name, value) == ("batch", 1) else str(value)


def _element(node: int, index: Index) -> str:
    return f"%{node}" + "".join(f"[{x}]" for x in index)
