"""How the time of a loop's step grows with the batch and with the number of steps, under ``jax.jit`` and stitched; and
what compiling a loop costs.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from bench.about import about
from bench.workloads import loop_programs as programs
from jax_stitch.api import stitch_jit
from jax_stitch.text import format_seconds
from jax_stitch.timing import time_in_turn

Case = tuple[Callable[..., Any], tuple[Any, ...]]

BATCHES = (1, 16, 256, 4096, 65536)
STEPS = (10, 1000, 100_000)
MOST_ELEMENTS = 1 << 25
"""Values read or written in all (batch times steps), above which a point is left out: memory."""


@dataclass(frozen=True, slots=True)
class Point:
    """One loop at one size; times in seconds per call."""

    loop: str
    batch: int
    steps: int
    plain: float
    stitched: float
    spread: float
    """Of the two timings the larger interquartile range over the median."""

    @property
    def speedup(self) -> float:
        return self.plain / self.stitched


@dataclass(frozen=True, slots=True)
class Compiled:
    """Seconds to compile a loop of ``steps``: by XLA alone and stitched, with nothing cached."""

    loop: str
    steps: int
    plain: float
    stitched: float


def _normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.1)


def _cart_pole(batch: int, steps: int) -> Case:
    return programs.environment, (tuple(_normal(4, batch)), _normal(steps, batch))


def _lorenz(batch: int, steps: int) -> Case:
    return functools.partial(programs.lorenz, steps=steps), (_normal(batch, 3),)


def _lorenz_gradient(batch: int, steps: int) -> Case:
    def loss(y: Any) -> Any:
        return programs.lorenz(y, steps).sum()

    return jax.grad(loss), (_normal(batch, 3),)


def _recurrent(batch: int, steps: int) -> Case:
    return programs.recurrent, (_normal(batch, 32), _normal(steps, batch, 16), _normal(32, 32), _normal(16, 32))


def _autoregressive_gradient(batch: int, steps: int) -> Case:
    def loss(weights: Any, x: Any, noise: Any) -> Any:
        return (jax.vmap(programs.autoregressive, (0, 1, None))(x, noise, weights) ** 2).sum()

    return jax.grad(loss), (jnp.asarray([0.9, 0.1], jnp.float32), _normal(batch), _normal(steps, batch))


LOOPS: dict[str, Callable[[int, int], Case]] = {
    "cart-pole": _cart_pole,
    "Lorenz, RK4": _lorenz,
    "Lorenz, gradient": _lorenz_gradient,
    "AR(1), gradient": _autoregressive_gradient,
    "RNN, 32 units": _recurrent,
}
VALUES = {"cart-pole": 3, "Lorenz, RK4": 1, "Lorenz, gradient": 60, "AR(1), gradient": 3, "RNN, 32 units": 16}
"""About how many values each loop has in memory per row and step."""


def points(seconds: float, most_work: int) -> Iterator[Point]:
    """Times every loop at every size of at most ``most_work`` rows times steps; ``seconds`` go to each."""
    for name, make in LOOPS.items():
        for batch in BATCHES:
            for steps in STEPS:
                if batch * steps > most_work or batch * steps * VALUES[name] > MOST_ELEMENTS:
                    continue
                function, args = make(batch, steps)
                calls = {
                    "plain": functools.partial(jax.jit(function), *args),
                    "stitched": functools.partial(stitch_jit(function), *args),
                }
                found = time_in_turn(calls, seconds=seconds)
                spread = max(t.spread for t in found.values())
                yield Point(name, batch, steps, found["plain"].median, found["stitched"].median, spread)


def compile_times(steps: tuple[int, ...] = (10, 10_000)) -> Iterator[Compiled]:
    """How long the first call's compilation takes; all of it where ``JAX_STITCH_CACHE_DIR`` is an empty folder."""
    for name, make in LOOPS.items():
        for count in steps:
            function, args = make(64, count)
            seconds = []
            for jitted in (jax.jit(function), stitch_jit(function)):
                start = time.perf_counter()
                jitted.lower(*args).compile()
                seconds.append(time.perf_counter() - start)
            yield Compiled(name, count, *seconds)


def crossing(found: list[Point], loop: str, steps: int) -> int | None:
    """The smallest batch from which on the stitched loop is never slower."""
    batches = sorted((p.batch, p.speedup) for p in found if p.loop == loop and p.steps == steps)
    best: int | None = None
    for batch, speedup in reversed(batches):
        if speedup < 1:
            break
        best = batch
    return best


def run(console: Console, seconds: float, most_work: int, path: Path | None) -> bool:
    """Measures, prints each point as it comes, writes ``path`` as JSON; returns whether no point is below 0.95."""
    found: list[Point] = []
    console.print(f"time per step, float32, {jax.default_backend()}, jax {jax.__version__}")
    for p in points(seconds, most_work):
        found.append(p)
        plain, stitched = (format_seconds(t / p.steps) for t in (p.plain, p.stitched))
        size = f"{p.batch:>7,} rows {p.steps:>8,} steps"
        console.print(f"{p.loop:18} {size}: {plain:>9} {stitched:>9} {p.speedup:6.2f}x, spread {p.spread:.0%}")
        _write(path, found, [])
    mean = statistics.geometric_mean(p.speedup for p in found)
    console.print(f"geometric mean {mean:.2f}, worst {min(p.speedup for p in found):.2f}")
    for name in LOOPS:
        for steps in STEPS:
            if any(p.loop == name and p.steps == steps for p in found):
                at = crossing(found, name, steps)
                console.print(f"{name}, {steps:,} steps: faster from a batch of {at if at is not None else '(none)'}")
    compiled = list(compile_times())
    for c in compiled:
        console.print(f"compile {c.loop}, {c.steps:,} steps: XLA {c.plain:.2f} s, stitched {c.stitched:.2f} s")
    _write(path, found, compiled)
    return all(p.speedup >= 0.95 for p in found)


def _write(path: Path | None, found: list[Point], compiled: list[Compiled]) -> None:
    if path is None:
        return
    rows = [asdict(p) | {"speedup": p.speedup} for p in found]
    data = {"about": about("cpu"), "points": rows, "compile": [asdict(c) for c in compiled]}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
