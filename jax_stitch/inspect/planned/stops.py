"""Why XLA's fusion stopped between the kernels of its final program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from jax_stitch.devices import Device
from jax_stitch.inspect.explain.rules import Kernels, why
from jax_stitch.inspect.planned.model import NOWHERE, PlannedProgram
from jax_stitch.util.values import replace


@dataclass(frozen=True, slots=True)
class KernelStop:
    """A place where one kernel of XLA's final program reads another's result."""

    producer: int
    """An operation."""
    consumer: int
    pass_: str
    """The pass of XLA that could have joined them."""
    reason: str
    joined: bool
    """Whether a stitched kernel has both operations."""


def kernel_stops(program: PlannedProgram, device: Device, seconds: float) -> Iterator[KernelStop]:
    """Yield one for each pair of kernels of which one reads the other's results; as many as ``seconds`` suffice for."""
    end = time.perf_counter() + seconds
    before, after = program.before, program.after
    inside = {k.name: frozenset(k.members) for k in before.kernels}
    for graph, here in program.computations:
        named = [before.kernels[k].name if (k := before.kernel_of[here[n.id]]) != NOWHERE else "" for n in graph.nodes]
        nodes = tuple(replace(n, kernel=name) for n, name in zip(graph.nodes, named, strict=True))
        kernels = Kernels(replace(graph, nodes=nodes), device)
        seen: set[tuple[str, str]] = set()
        for node in nodes:
            for o in node.operands:
                producer = nodes[o]
                pair = producer.kernel, node.kernel
                if "" in pair or pair in seen or here[o] in inside[node.kernel]:
                    continue  # (what the reader computes itself it does not read)
                if time.perf_counter() > end:
                    return
                seen.add(pair)
                p, c = here[o], here[node.id]
                pass_, reason = why(kernels, producer, node)
                joined = after.kernel_of[p] == after.kernel_of[c] != NOWHERE
                yield KernelStop(p, c, pass_, reason, joined)
