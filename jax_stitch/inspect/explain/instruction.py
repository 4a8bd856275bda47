"""The explanation of one instruction of a planned function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.fusion.delta_evaluator import Gain, XlaKernels, evaluate
from jax_stitch.fusion.plan_cost import predicted
from jax_stitch.graph.model import Graph
from jax_stitch.inspect.explain.candidates import candidates, names_of
from jax_stitch.inspect.explain.find import Located, find, streamed_names
from jax_stitch.inspect.explain.model import Explanation
from jax_stitch.inspect.explain.rules import Kernels, stops
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.values import replace


def explain(stitched: Stitched, instruction: str) -> Explanation:
    """Return why ``instruction``, by its name in the optimized HLO, is in its kernel or in none; see ``Plan.explain``.

    Raises ``UnknownInstructionError``.
    """
    device = stitched.device
    located = find(stitched.plan, stitched.captured_graph, device, instruction)
    plan, graph, node = located.plan, located.graph, located.graph[located.node]
    holding = [(k, p) for k in stitched.kernels for p in _patterns(k, located)]
    own = [(k, p) for k, p in holding if p.nodes & set(located.planned)]
    copies = dict.fromkeys(k.source.name for k, p in holding if p.copies & set(located.planned))
    names = {k.number: k.scheduled.name for k in stitched.kernels}
    kernels = dict.fromkeys([names[k.number] for k, _ in own]) | copies
    gain = _gain(plan.graph, [p for _, p in own], stitched) if own else None
    patterns = {frozenset(names_of(plan.graph, p.nodes)) for _, p in own}
    body = located.body or graph
    here = body[located.inner] if located.body else node
    # What is in the body of a loop that is one kernel is all together.
    together = frozenset(range(len(body))) if own and located.body else None
    joined = _joined(stitched, located) if together is None else dict.fromkeys(range(len(body)), together)
    return Explanation(
        instruction=located.name,
        op=here.op,
        source=here.source,
        xla_kernel=here.xla_kernel,
        kernels=tuple(kernels),
        kernel_instructions=sum(len(p.pattern.nodes) for p in own[0][0].scheduled.parts) if own else 0,
        reason=_saved(located, gain) if gain is not None else _reason(located),
        chosen=gain,
        plan_seconds=predicted(plan, device).seconds,
        candidates=candidates(graph, located.node, plan, patterns, device),
        stops=tuple(stops(Kernels(body, device), here.id, joined)),
        inside=located.inside,
    )


def _patterns(kernel: StitchedKernel, located: Located) -> Iterator[Pattern]:
    """Yield the patterns of a kernel that compute the instruction."""
    if kernel.scheduled.graph is not located.plan.graph:
        return
    for part in kernel.scheduled.parts:
        if part.pattern.inside & set(located.planned):
            yield part.pattern


def _gain(graph: Graph, patterns: list[Pattern], stitched: Stitched) -> Gain:
    """Return what patterns save together."""
    gains = [evaluate(graph, XlaKernels(graph), p, stitched.device) for p in dict.fromkeys(patterns)]
    total = Gain(0.0, 0.0, 0.0, 0)
    for g in gains:
        total = replace(
            total,
            memory=total.memory + g.memory,
            calls=total.calls + g.calls,
            penalty=total.penalty + g.penalty,
            merged=total.merged + g.merged,
        )
    return total


def _saved(located: Located, gain: Gain) -> str:
    """Return what the kernel saves; of what a loop over tiles computes, how."""
    if any(located.name in streamed_names(located.plan.graph[i]) for i in located.planned):
        return "computed tile by tile, with the reductions over it; only their results are written"
    kernels = "a kernel" if gain.merged == 1 else f"{gain.merged} kernels"
    merged = f"its part takes the place of {kernels}" if gain.merged else "its part is of parts of kernels"
    merged += " of XLA, a fusion by Triton or a library counted for each of its reductions"
    penalty = f", less {format_seconds(gain.penalty)} for slower access" if gain.penalty > 0 else ""
    return (
        f"{merged}; reduced memory time {format_seconds(max(gain.memory, 0.0))}, reduced calls "
        f"{format_seconds(max(gain.calls, 0.0))}{penalty}"
    )


def _reason(located: Located) -> str:
    """Return why it is in no stitched kernel."""
    for boundary in located.plan.boundaries:
        if boundary.node in located.planned:
            return boundary.reason
    op = located.graph[located.node].op
    if op in ("parameter", "constant", "iota"):
        return f"a {op}, which each kernel that needs it reads or makes"
    return "whoever needs it makes it: it is no work of its own"


def _joined(stitched: Stitched, located: Located) -> Mapping[int, frozenset[int]]:
    """Return the nodes of the graph before planning that share a stitched kernel with each."""
    plan = located.plan
    by_name = {node.name: node.id for node in located.graph.nodes if node.name}
    together: dict[int, frozenset[int]] = {}
    for kernel in stitched.kernels:
        if kernel.scheduled.graph is not plan.graph:
            continue
        inside = [plan.graph[i].name for p in kernel.scheduled.parts for i in p.pattern.inside]
        ids = frozenset(by_name[name] for name in inside if name in by_name)
        for i in ids:
            together[i] = together.get(i, frozenset()) | ids
    return together
