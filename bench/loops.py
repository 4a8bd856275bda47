"""How the time of a loop's step grows with the batch and with the number of steps, under ``jax.jit`` and stitched; and
what compiling a loop costs.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.workloads import loop_programs as programs
from jax_stitch.api import stitch_jit
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean, time_in_turn

Case = tuple[Callable[..., Any], tuple[Any, ...]]

BATCHES = (1, 16, 256, 4096, 65536)
STEPS = (10, 1000, 100_000)
LEAST_MEAN, LEAST = 1.2, 0.95
"""How many times faster than ``jax.jit`` the stitched loops have to be: in geometric mean, and each of them."""
MOST_ELEMENTS = 1 << 28
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
    stitched_loops: int
    """Kernels with loops; with none, XLA runs the loop on both sides."""

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


def points(
    seconds: float, most_work: int, names: Sequence[str], batches: Sequence[int], steps: Sequence[int]
) -> Iterator[Point]:
    """Times loops at every size of at most ``most_work`` rows times steps; ``seconds`` go to each."""
    for name, batch, count in itertools.product(names, batches, steps):
        if batch * count <= most_work and batch * count * VALUES[name] <= MOST_ELEMENTS:
            yield measure(name, batch, count, seconds)


def measure(name: str, batch: int, steps: int, seconds: float) -> Point:
    """Times one loop at one size, calls under ``jax.jit`` and stitched in turn."""
    function, args = LOOPS[name](batch, steps)
    stitched = stitch_jit(function)
    calls = {"plain": functools.partial(jax.jit(function), *args), "stitched": functools.partial(stitched, *args)}
    found = time_in_turn(calls, seconds=seconds)
    spread = max(t.spread for t in found.values())
    loops = sum("// a loop of" in kernel.source for kernel in stitched.plan(*args).kernels)
    jax.clear_caches()
    return Point(name, batch, steps, found["plain"].median, found["stitched"].median, spread, loops)


def compile_times(names: Sequence[str], steps: tuple[int, ...] = (10, 10_000)) -> Iterator[Compiled]:
    """How long the first call's compilation takes; all of it where ``JAX_STITCH_CACHE_DIR`` is an empty folder."""
    for name in names:
        for count in steps:
            function, args = LOOPS[name](64, count)
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the points say together, of which there is at least one."""

    mean: float
    """Geometric mean of all speed-ups; 1 where XLA runs the loop on both sides."""
    worst: float
    """Where the loop is stitched; 1 where none is."""

    @property
    def reached(self) -> bool:
        """Whether stitched loops are as fast as they have to be."""
        return self.mean >= LEAST_MEAN and self.worst >= LEAST

    def __str__(self) -> str:
        return (
            f"geometric mean {self.mean:.2f} (at least {LEAST_MEAN}), worst where the loop is stitched "
            f"{self.worst:.2f} (at least {LEAST})"
        )


def verdict(found: Sequence[Point]) -> Verdict:
    """Programs that hold the same loop of XLA's on both sides count as equally fast, whatever was measured."""
    mean = geometric_mean([p.speedup if p.stitched_loops else 1.0 for p in found])
    return Verdict(mean, min((p.speedup for p in found if p.stitched_loops), default=1.0))


def run(
    console: Console,
    seconds: float,
    most_work: int,
    path: Path | None,
    names: Sequence[str] = tuple(LOOPS),
    batches: Sequence[int] = BATCHES,
    steps: Sequence[int] = STEPS,
) -> bool:
    """Measures and prints each point as it comes; returns whether the bars are reached.

    ``path`` is written as JSON after each point, and the plot beside it after each loop and at the end: whoever
    interrupts a run keeps both, and is told what the points so far say.
    """
    found: list[Point] = []
    compiled: list[Compiled] = []
    facts = about(jax.default_backend().replace("gpu", "cuda"))
    console.print(f"time per step, float32, {jax.default_backend()}, jax {jax.__version__}")
    try:
        for name in names:
            for p in points(seconds, most_work, [name], batches, steps):
                found.append(p)
                _print(console, p)
                _write(path, facts, found, compiled)
            _draw(path, found)
        for c in compile_times(names):
            compiled.append(c)
            console.print(f"compile {c.loop}, {c.steps:,} steps: XLA {c.plain:.2f} s, stitched {c.stitched:.2f} s")
            _write(path, facts, found, compiled)
    finally:
        if found:
            _draw(path, found)
            for name, count in dict.fromkeys((p.loop, p.steps) for p in found):
                at = crossing(found, name, count)
                console.print(f"{name}, {count:,} steps: never slower from a batch of {'(none)' if at is None else at}")
            console.print(str(verdict(found)))
    return verdict(found).reached


def _print(console: Console, p: Point) -> None:
    plain, stitched = (format_seconds(t / p.steps) for t in (p.plain, p.stitched))
    size = f"{p.batch:>7,} rows {p.steps:>8,} steps"
    left = "" if p.stitched_loops else ", left to XLA"
    console.print(f"{p.loop:18} {size}: {plain:>9} {stitched:>9} {p.speedup:6.2f}x, spread {p.spread:.0%}{left}")


def _write(path: Path | None, facts: dict[str, Any], found: Sequence[Point], compiled: Sequence[Compiled]) -> None:
    if path is None:
        return
    rows = [asdict(p) | {"speedup": p.speedup} for p in found]
    said = asdict(verdict(found)) if found else {}
    write_json(path, {"about": facts, "points": rows, "compile": [asdict(c) for c in compiled], "verdict": said})


def _draw(path: Path | None, found: list[Point]) -> None:
    """Speed-ups over the batch, a picture for each number of steps, with a ring where the stitched loop stays ahead."""
    if path is None or not found:
        return
    from bench.plots import crossings  # matplotlib is needed for nothing else

    series: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for p in found:
        series.setdefault(p.steps, {}).setdefault(p.loop, []).append((p.batch, p.speedup))
    at = {(steps, name): crossing(found, name, steps) for steps, of in series.items() for name in of}
    crossings(series, at, path.with_suffix(""))
