"""Stitching whatever is local, whether or not it is worth a kernel: so that small tests test kernels and not XLA's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest import mock

import jax
import numpy as np
from jaxlib import _hlo

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.backend.compile import host
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource, emit
from jax_stitch.fusion import FusionPlan, Pattern, explore, planner, search
from jax_stitch.fusion.delta_evaluator import Gain
from jax_stitch.graph import Graph
from jax_stitch.jit.stitching.model import SentProgram
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.schedule import ScheduledKernel, schedule

LIGHT_FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in host.FLAGS)
"""The kernels' own flags but for the optimisation level: a third of the compilation time."""


def hlo_of(fun: Callable[..., Any], *args: Any) -> str:
    """The HLO of a function as JAX writes it, before XLA touches it."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    lowered: Any = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    return str(lowered.as_hlo_module().to_string(options))


def graph_of(fun: Callable[..., Any], *args: Any) -> Graph:
    return graph.build(hlo_parser.parse(hlo_of(fun, *args)))


def graph_from(body: str, computations: str = "") -> Graph:
    """The graph of an HLO module whose entry has the instructions of ``body``."""
    built = graph.build(hlo_parser.parse(f"HloModule test\n{computations}\nENTRY %main {{\n{body}\n}}\n"))
    graph.verify(built)
    return built


def device(name: str, **changes: Any) -> Device:
    return replace(devices.get(name), **changes)


@contextmanager
def everything_pays(seed: int | None = None, *, straight: bool = False) -> Iterator[None]:
    """Every pattern is worth a kernel, the largest most; with a seed, in a random order, and now and then one is
    not. Without ``straight`` code none is one step of a team: it would take what the search is to find.
    """
    rng = random.Random(seed)

    def evaluate(_graph: Graph, _origins: Any, pattern: Pattern, _device: Device) -> Gain:
        memory = float(len(pattern.nodes)) if seed is None else rng.random() - 0.1
        return Gain(memory, 0.0, 0.0, 2 if memory > 0 else 0)

    none = nullcontext() if straight else mock.patch.object(planner, "straight_patterns", lambda *_: [])
    slow = mock.patch.object(planner, "paying", lambda _, kernels, __: tuple(kernels))
    with mock.patch.object(search, "evaluate", evaluate), none, slow:
        yield


def plan_of(built: Graph, target: Device, seed: int | None = None) -> FusionPlan:
    with everything_pays(seed):
        return explore(built, target)


def scheduled(plan: FusionPlan, target: Device) -> list[ScheduledKernel]:
    return [schedule(plan.graph, k, target, f"kernel_{n}") for n, k in enumerate(plan.kernels)]


def sources(plan: FusionPlan, target: Device) -> list[KernelSource]:
    return [emit(k) for k in scheduled(plan, target)]


def stitched(
    text: str,
    target: Device,
    seed: int | None = None,
    homes: Mapping[int, int] = MappingProxyType({}),
    *,
    straight: bool = False,
) -> Stitched:
    """The kernels of an HLO module for ``target``, not yet compiled; ``homes`` as those of a ``Capture``."""
    with everything_pays(seed, straight=straight):
        return stitched_now(text, target, homes)


def stitched_now(text: str, target: Device, homes: Mapping[int, int] = MappingProxyType({})) -> Stitched:
    """The kernels of an HLO module by what pays here and now."""
    captured = SentProgram("function", target, text, homes, (), (), seconds=0.0, xla_seconds=None)
    return stitch_capture(captured, target)


def run(made: Stitched, args: Sequence[Any]) -> list[np.ndarray]:
    """The results on this machine's CPU, whatever device the kernels are laid out for."""
    with mock.patch.object(host, "FLAGS", LIGHT_FLAGS):
        function = made.compile("host")
    return [np.asarray(r) for r in jax.jit(function)([jax.device_put(a) for a in args])]
