"""Show what each pass over the graph changed, for ``python -m jax_stitch trace --passes`` and ``JAX_STITCH_DUMP``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from jax_stitch.graph.model import Graph
from jax_stitch.graph.text import graph_lines
from jax_stitch.ir.passes import Step
from jax_stitch.util.formatting import format_seconds


def pass_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a line for each pass that ran: its pipeline, its name, its time, and what it changed."""
    width = max((len(s.name) for s in steps), default=0)
    pipeline = ""
    for step in steps:
        before, after = _graph(step.before), _graph(step.after)
        head = f"{step.pipeline} of {before.name}"
        if head != pipeline:
            yield head
            pipeline = head
        yield f"  {step.name:{width}}  {format_seconds(step.seconds):>8}  {_change(before, after)}"


def after_lines(steps: Sequence[Step], name: str) -> Iterator[str]:
    """Yield the graphs that a pass made, one after the other.

    Raises:
        LookupError: no pass of that name ran. The message names those that did.
    """
    named = [s for s in steps if s.name == name]
    if not named:
        ran = ", ".join(dict.fromkeys(s.name for s in steps))
        raise LookupError(f"no pass {name!r} ran; those that did are {ran}")
    for step in named:
        yield f"// after {step.name} ({step.pipeline})"
        yield from graph_lines(_graph(step.after))


def _graph(value: object) -> Graph:
    graph = getattr(value, "graph", value)
    assert isinstance(graph, Graph)
    return graph


def _change(before: Graph, after: Graph) -> str:
    """Return the operations that are more and fewer than before, in loops and branches too."""
    if after is before:
        return "unchanged"
    old, new = Counter(_operations(before)), Counter(_operations(after))
    parts = [f"+{n} {op}" for op, n in sorted((new - old).items())]
    parts += [f"-{n} {op}" for op, n in sorted((old - new).items())]
    return f"{old.total()} -> {new.total()} operations: {', '.join(parts) or 'in another order, or of another form'}"


def _operations(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield node.op
        if node.op in ("while", "conditional", "call"):
            for called in node.graphs.values():
                yield from _operations(called)
