"""Plans to draw: real ones, planned once, and made-up ones of any size, which take no compiler."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from bench.workloads.base import Workload
from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic, traffic
from jax_stitch.inspect.report.plan import Boundary, KernelPlan, Launch, Plan

ROWS, COLUMNS = 64, 256
OPS = ("exponential", "negate", "tanh", "sqrt", "logistic", "cosine", "abs", "floor", "sine", "log")


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def _loss(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    with jax.named_scope("LayerNorm_1"):
        return jnp.sum(layer_norm(x, scale, bias) ** 2)


def _shapes(*sizes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]


@functools.cache
def normalisation(planner: str = "beam", device: str = "h200") -> Plan:
    """The gradient of a LayerNorm, of which XLA makes seven kernels."""
    args = _shapes((8192, 1024), (1024,), (1024,))
    return stitch_jit(jax.grad(_loss, (0, 1, 2))).plan(*args, device=device, planner=planner)


@functools.cache
def normalisation_forward() -> Plan:
    """A LayerNorm, of which XLA's final program makes one kernel."""
    return stitch_jit(layer_norm).plan(*_shapes((8192, 1024), (1024,), (1024,)), device="h200")


class _Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(2 * x.shape[-1])(nn.LayerNorm()(x))))


class _Model(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(1)(_Block()(x))


@functools.cache
def flax_step() -> Plan:
    """A step of a Flax model of one block with AdamW."""
    model, optimizer = _Model(), optax.adamw(1e-3)
    x, y = _shapes((256, 128), (256, 1))
    params = jax.eval_shape(model.init, jax.random.key(0), x)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((model.apply(params, x) - y) ** 2)

    def step(params: Any, moments: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, value

    return stitch_jit(step).plan(params, jax.eval_shape(optimizer.init, params), x, y, device="h200")


def of_workload(workloads: Sequence[Workload], name: str, size: tuple[int, ...] | None = None) -> Plan:
    """The plan of a benchmark's workload on an H200."""
    workload = next(w for w in workloads if w.name == name)
    fun, args = workload.abstract(size or workload.gpu_size, jnp.float32)
    return stitch_jit(fun).plan(*args, device="h200")


def layered(folder: Path, layers: int = 12, parts: int = 42, scope: str = "Layer") -> Plan:
    """A made-up program: ``layers`` alike layers of ``parts`` fusions of ten operations, of which every three become a
    stitched kernel. Its source is ``model.py`` in ``folder``.
    """
    lines = [f"    x = {OPS[n % len(OPS)]}(x)  # line {n + 2}" for n in range(parts)]
    source = folder / "model.py"
    source.write_text("\n".join(["def layer(x):", *lines, "    return x"]), encoding="utf-8")
    text = _hlo(source, layers, parts, scope)
    kernels = tuple(_kernels(layers, parts))
    whole = 4 * ROWS * COLUMNS
    rows = tuple(KernelTraffic(f"call.{n}", "custom-call", 1, 2 * whole, False) for n in range(len(kernels)))
    return Plan(
        function="step",
        device=devices.get("h200"),
        kernels=kernels,
        boundaries=(Boundary("exponential.0.0", "exponential", "left <b>here</b> for the test"),),
        bound_bytes=2 * whole,
        hlo=text,
        count_xla=functools.partial(traffic, text),
        count_stitched=lambda: Traffic(rows),
        notes=("a <note>",),
        seconds={"capture": 0.25},
    )


def _names(layer: int, part: int) -> list[str]:
    return [f"{op}.{1000 * (layer * 1000 + part) + n}" for n, op in enumerate(OPS)]


def _hlo(source: Path, layers: int, parts: int, scope: str) -> str:
    """Optimized HLO as XLA prints it, with tables of stack frames."""
    type_ = f"f32[{ROWS},{COLUMNS}]{{1,0}}"
    count = range(1, parts + 1)
    head = [
        "HloModule jit_step, is_scheduled=true",
        f'FileNames\n1 "{source}"\n',
        'FunctionNames\n1 "layer"\n',
        "FileLocations\n"
        + "\n".join(
            f"{n} {{file_name_id=1 function_name_id=1 line={n + 1} end_line={n + 1} column=4 end_column=9}}"
            for n in count
        )
        + "\n",
        "StackFrames\n" + "\n".join(f"{n} {{file_location_id={n} parent_frame_id=1}}" for n in count) + "\n",
    ]
    fused, entry, last = [], [], "x"
    for layer in range(layers):
        for part in range(parts):
            about = f'metadata={{op_name="jit(step)/{scope}_{layer}/Part_{part % 4}/op" stack_frame_id={part + 1}}}'
            own, value = [f"  %p.{layer}.{part} = {type_} parameter(0)"], f"p.{layer}.{part}"
            for name, op in zip(_names(layer, part), OPS, strict=True):
                root = "ROOT " if op == OPS[-1] else ""
                own.append(f"  {root}%{name} = {type_} {op}(%{value}), {about}")
                value = name
            called = f"fused.{layer}.{part}"
            fused.append("\n".join([f"%{called} (p: f32[{ROWS},{COLUMNS}]) -> f32[{ROWS},{COLUMNS}] {{", *own, "}\n"]))
            here = f"fusion.{layer}.{part}"
            root = "ROOT " if (layer, part) == (layers - 1, parts - 1) else ""
            entry.append(f"  {root}%{here} = {type_} fusion(%{last}), kind=kLoop, calls=%{called}, {about}")
            last = here
    start = f"ENTRY %main (x: f32[{ROWS},{COLUMNS}]) -> f32[{ROWS},{COLUMNS}] {{\n  %x = {type_} parameter(0)"
    return "\n".join([*head, *fused, start, *entry, "}\n"])


def _kernels(layers: int, parts: int) -> Any:
    whole = 4 * ROWS * COLUMNS
    for layer in range(layers):
        for first in range(0, parts, 3):
            yield KernelPlan(
                name=f"stitch_{first}",  # as layers' kernels share their source, they share their name
                source=_source(first),
                launch=Launch(64, 256, 4096),
                ops=tuple(name for part in range(first, min(parts, first + 3)) for name in _names(layer, part)),
                xla_kernels=tuple(f"fusion.{layer}.{part}" for part in range(first, min(parts, first + 3))),
                composition=("thread", "block"),
                schedule="log[GRID_64,CTA]",
                bytes_read=whole,
                bytes_written=whole,
            )


def _source(first: int) -> str:
    lines = [f"  float v{n} = x[{n} + {first}] < {n}.0f ? 1e-5f : x[{n}]; // <{first}>" for n in range(60)]
    return "\n".join(['#include "stitch.h"', f"void stitch_{first}(const float* x) {{", *lines, "}\n"])
