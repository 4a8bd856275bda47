"""Whole loops: time on this machine's CPU under ``jax.jit`` and stitched, and launches planned for an H200."""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.workloads import loop_programs as programs
from jax_stitch.api import stitch_jit
from jax_stitch.text import format_seconds
from jax_stitch.timing import time_in_turn


def _normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.1)


def cases(batch: int, steps: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Loops by name, for a batch and a number of steps."""
    state, actions = tuple(_normal(4, batch)), _normal(steps, batch)
    with_rng = functools.partial(programs.environment_with_rng, steps=steps)
    return {
        "cart-pole": (programs.environment, (state, actions)),
        "cart-pole, concatenate": (programs.environment_with_concatenate, (_normal(batch, 4), actions)),
        "cart-pole, RNG in the loop": (with_rng, (state, jnp.asarray([1, 2], jnp.uint32))),
        "Lorenz, RK4": (functools.partial(programs.lorenz, steps=steps), (_normal(batch, 3),)),
        "adaptive step, vmapped while": (programs.trajectories, (_normal(batch) * 10,)),
        "discounted rewards, reversed": (programs.discounted, (_normal(steps, batch),)),
        "logistic map, scalar": (functools.partial(programs.logistic_map, steps=steps), (jnp.float32(0.3),)),
    }


def run(batch: int, steps: int, path: Path | None) -> None:
    """Times and counts every loop, prints a table, and writes ``path`` as JSON."""
    table = Table(title=f"batch {batch}, {steps} steps, float32, cpu, jax {jax.__version__}")
    for column in ("loop", "jax.jit", "stitched", "speed-up", "H200 launches: XLA", "stitched"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    rows = []
    for name, (function, args) in cases(batch, steps).items():
        stitched = stitch_jit(function)
        plain = jax.jit(function)
        calls = {"plain": functools.partial(plain, *args), "stitched": functools.partial(stitched, *args)}
        times = time_in_turn(calls)
        plan = stitched.plan(*args, device="h200")
        a, b = times["plain"].median, times["stitched"].median
        rows.append({"loop": name, "plain": a, "stitched": b, "xla": plan.xla_launches, "launches": plan.launches})
        table.add_row(
            name, format_seconds(a), format_seconds(b), f"{a / b:.2f}x", f"{plan.xla_launches:,}", f"{plan.launches:,}"
        )
    Console().print(table)
    if path is not None:
        machine = {"cpu": platform.processor() or platform.machine(), "jax": jax.__version__}
        path.write_text(json.dumps({"batch": batch, "steps": steps, "machine": machine, "rows": rows}, indent=2) + "\n")
