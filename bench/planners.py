"""The planners beside each other: what each makes of the same workloads, and how planning time grows with the graph."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jaxlib import _hlo
from rich.console import Console

import hlo_parser
from bench.about import about
from bench.files import write_json
from bench.first_minute.growth import AT_MOST
from bench.workloads import ALL
from jax_stitch import devices
from jax_stitch import graph as graphs
from jax_stitch.devices import Device
from jax_stitch.emit import emit
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.traffic import traffic
from jax_stitch.fusion import FusionPlan, explore
from jax_stitch.fusion.launch_bound import launched_apart, least_launches
from jax_stitch.fusion.plan_cost import predicted
from jax_stitch.graph import Graph
from jax_stitch.schedule import schedule
from jax_stitch.util.collecting import put_off
from jax_stitch.util.formatting import format_bytes, format_seconds, text_table
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.store.location import FOLDER_VARIABLE

WORKLOADS = (
    *("layer_norm_and_gradient", "residual_dropout_layer_norm", "softmax_first", "cross_entropy_gradient"),
    *("batch_norm_gradient", "group_norm_and_gradient", "standardise", "adamw", "adamw_clipped", "perceptron"),
    *("variational_auto_encoder", "word2vec", "multi_interest", "bert_inference", "training_step", "bert_training"),
)
ALSO_SMALL = ("bert_training",)
"""Workloads that are planned at the size for a CPU too: two layers beside twelve."""
LAYERS = (3, 6, 10, 13, 27, 54)
"""Of the training step by which the growth of planning time is seen: about 1,200 to 20,000 operations."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one planner makes of one workload; launches and bytes are those of kernels that are not library calls."""

    workload: str
    operations: int
    planner: str
    launches: int
    """Predicted, as are the bytes: on the planned graph, of stitched kernels and those left to XLA."""
    bytes: int
    seconds: float
    planning: float
    """CPU seconds on one core."""
    generating: float
    """CPU seconds that the kernels' sources took, uncompiled."""
    least: int
    """Launches that no plan of the graph can do without."""
    xla_launches: int
    """Counted on XLA's own program."""
    compiling: float
    """Seconds that XLA's own compilation of the program took, by the clock."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Planning time of a training step of so many layers."""

    layers: int
    operations: int
    planning: float
    kernels: int
    unlike: bool = False
    """Whether no layers are alike."""

    @property
    def per_operation(self) -> float:
        return self.planning / self.operations


def run(console: Console, device: str, only: Sequence[str], layers: Sequence[int], path: Path | None) -> bool:
    """Prints both tables; whether every workload could be planned, and planning time grew with the graph alone."""
    target = devices.get(device)
    rows: list[Row] = []
    growth: list[Growth] = []

    def keep() -> None:
        if path is not None:
            growing = [asdict(g) | {"per_operation": g.per_operation} for g in growth]
            found = {"about": about(device), "device": device, "rows": list(map(asdict, rows)), "growth": growing}
            write_json(path, found)

    failed = []
    for name, is_small in [(n, s) for n in only for s in (False, True) if not s or n in ALSO_SMALL]:
        try:
            rows += of_workload(name, target, is_small)
        except Exception as reason:  # a workload that cannot be planned is told; the others go on
            failed.append(f"{name}: {type(reason).__name__}: {reason}")
            console.print(failed[-1], highlight=False, markup=False)
        keep()
    header = (
        *("workload", "ops", "planner", "launches", "least", "XLA's own", "bytes", "predicted"),
        *("planning", "generating", "XLA compiles"),
    )
    console.print(text_table(header, list(map(_cells, rows)), right=(1, *range(3, 11))), highlight=False)
    for count, unlike in itertools.product(layers, (False, True)):
        growth.append(of_layers(count, target, unlike))
        keep()
    if growth:
        console.print()
        columns = ("layers", "alike", "operations", "planning", "per operation", "kernels")
        console.print(text_table(columns, list(map(_growth_cells, growth)), right=(0, 2, 3, 4, 5)), highlight=False)
        console.print(f"time per operation grows by at most {growth_of(growth):.2f} from a graph to a larger one")
    return not failed and growth_of(growth) <= AT_MOST


def of_workload(name: str, device: Device, is_small: bool = False) -> Iterator[Row]:
    """Each planner on one capture of a workload, at its size for a GPU where the device is one and it is not to be
    ``is_small``.
    """
    workload = ALL[name]
    size = workload.gpu_size if device.target.packs_launches and not is_small else workload.size
    function, arguments = workload.abstract(size, jnp.float32)
    captured = capture(function, arguments, device)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {FOLDER_VARIABLE: folder}):
        start = time.perf_counter()
        text = captured.default_text  # Compiled: none is in that cache.
        compiling = time.perf_counter() - start
    graph = graphs.build(hlo_parser.parse(captured.text))
    own, least = traffic(text), least_launches(graph)
    for planner in PlannerName:
        seconds, plan = _timed(functools.partial(explore, graph, device, planner))
        generating, _ = _timed(functools.partial(_generate, plan, device))
        made = predicted(plan, device)
        launches = own.launches - own.library_launches
        label = f"{name}, small" if is_small else name
        found = made.launches + launched_apart(plan.graph), made.bytes, made.seconds
        yield Row(label, len(graph), planner, *found, seconds, generating, least, launches, compiling)


def _timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """With nothing collected meanwhile, as in the process in which the default mode plans."""
    with put_off():
        start = time.process_time()
        made = make()
        return time.process_time() - start, made


def _generate(plan: FusionPlan, device: Device) -> None:
    """The sources of a plan's kernels and of those in the loops and branches that stay with XLA."""
    for n, kernel in enumerate(plan.kernels):
        emit(schedule(plan.graph, kernel, device, f"stitch_{n}"))
    for child in plan.children.values():
        _generate(child, device)


def of_layers(count: int, device: Device, unlike: bool = False) -> Growth:
    """The default planner on a training step of ``count`` Transformer layers, as JAX writes it: before XLA's passes,
    so that the graph is there in seconds and every operation is a kernel. Like layers are planned once; no layers are
    alike where they are to be ``unlike``. The least time of three, each of a graph that nobody has seen.
    """
    found = []
    for _ in range(3):
        graph = training_graph(count, unlike)
        found.append(_timed(functools.partial(explore, graph, device, PlannerName.BEAM)))
    times, plans = zip(*found, strict=True)
    return Growth(count, len(graph), min(times), len(plans[0].kernels), unlike)


def growth_of(found: Sequence[Growth]) -> float:
    """The most that the time per operation grows from any graph to a larger one of its kind; 1 where it only falls."""
    worst = 1.0
    for unlike in (False, True):
        times = [g.per_operation for g in sorted(found, key=lambda g: g.operations) if g.unlike == unlike]
        worst = max(worst, *(later / t for k, t in enumerate(times) for later in times[k:]), 1.0)
    return worst


def training_graph(layers: int, unlike: bool = False, width: int = 256, rows: int = 512) -> Graph:
    """Forward, gradient and Adam of pre-norm Transformer layers with weights of their own: 370 operations each.

    ``unlike`` layers differ in the width between their matrices, in their activations and in their norms.
    """
    array = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)

    def layer(k: int) -> dict[str, Any]:
        inner = 4 * width + 8 * k * unlike
        matrices = dict.fromkeys("qkvo", (width, width)) | {"up": (width, inner), "down": (inner, width)}
        vectors = dict.fromkeys(("scale1", "shift1", "scale2", "shift2", "bias2"), width) | {"bias1": inner}
        return {k: array(shape) for k, shape in matrices.items()} | {k: array((n,)) for k, n in vectors.items()}

    params = [layer(k) for k in range(layers)]
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    step = functools.partial(_step, unlike)
    lowered: Any = jax.jit(step, keep_unused=True).lower(params, params, params, array((rows, width)))
    return graphs.build(hlo_parser.parse(lowered.compiler_ir("hlo").as_hlo_module().to_string(options)))


def _norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def _root_mean_square(x: Any, scale: Any, shift: Any) -> Any:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


ACTIVATIONS = jax.nn.gelu, jax.nn.silu, jnp.tanh, jax.nn.softplus, lambda x: jax.nn.relu(x) ** 2


def _loss(unlike: bool, params: Any, x: Any) -> Any:
    for k, p in enumerate(params):
        activation = ACTIVATIONS[k % len(ACTIVATIONS) * unlike]
        norm = _root_mean_square if unlike and k % 2 else _norm
        h = norm(x, p["scale1"], p["shift1"])
        weights = jax.nn.softmax(h @ p["q"] @ (h @ p["k"]).T / 8, -1)
        x = x + weights @ (h @ p["v"]) @ p["o"]
        h = norm(x, p["scale2"], p["shift2"])
        x = x + activation(h @ p["up"] + p["bias1"]) @ p["down"] + p["bias2"]
    return (x**2).mean()


def _step(unlike: bool, params: Any, first: Any, second: Any, x: Any) -> Any:
    gradient = jax.grad(functools.partial(_loss, unlike))(params, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradient)
    moved = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return moved, first, second


def _growth_cells(growth: Growth) -> tuple[str, ...]:
    times = format_seconds(growth.planning), format_seconds(growth.per_operation)
    return (str(growth.layers), "no" if growth.unlike else "yes", f"{growth.operations:,}", *times, str(growth.kernels))


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.workload,
        f"{row.operations:,}",
        row.planner,
        f"{row.launches:,}",
        f"{row.least:,}",
        f"{row.xla_launches:,}",
        format_bytes(row.bytes),
        format_seconds(row.seconds),
        format_seconds(row.planning),
        format_seconds(row.generating),
        format_seconds(row.compiling),
    )
