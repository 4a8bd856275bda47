"""``python -m bench attention``: attention under ``jax.jit`` and ``stitch_jit``, each called in turn.

The programs are plain ``jax.numpy``, as people write them, and ``jax.nn.dot_product_attention``. Errors are against
float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.turns import order, row_of
from jax_stitch import stitch_jit
from jax_stitch.util.formatting import format_seconds, text_table

Shape = tuple[int, int, int, int]
"""Batch, length, heads and size of a head."""

USUAL: tuple[Shape, ...] = ((2, 1024, 8, 64), (1, 512, 8, 64), (8, 128, 4, 64), (2, 197, 12, 64))


def _scores(q: Any, k: Any, *, causal: bool, window: int = 0) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if not causal:
        return scores
    i, j = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None]
    return jnp.where((j <= i) & (j > i - window) if window else j <= i, scores, -jnp.inf)


def _attention(q: Any, k: Any, v: Any, *, causal: bool = False, window: int = 0) -> Any:
    weights = jax.nn.softmax(_scores(q, k, causal=causal, window=window))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def _capped(q: Any, k: Any, v: Any) -> Any:
    scores = _scores(q, k, causal=False)
    scores = 30.0 * jnp.tanh(scores / 30.0) - 0.1 * jnp.abs(jnp.arange(q.shape[1])[:, None] - jnp.arange(k.shape[1]))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def _gradient(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    result, back = jax.vjp(partial(_attention, causal=causal), q, k, v)
    return result, back(jnp.tanh(result))


PROGRAMS: Mapping[str, Callable[..., Any]] = {
    "full": _attention,
    "causal": partial(_attention, causal=True),
    "window of 256": partial(_attention, causal=True, window=256),
    "soft cap and bias": _capped,
    "jax.nn, causal": partial(jax.nn.dot_product_attention, is_causal=True),
    "full and its gradient": partial(_gradient, causal=False),
    "causal and its gradient": partial(_gradient, causal=True),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One program at one size: seconds of a call, and the largest errors against float64."""

    program: str
    shape: Shape
    plain: float
    stitched: float
    ratio: float
    """How many times as fast the stitched one is: the median of the rounds."""
    noise: float
    """The same for a second ``jax.jit``."""
    kernels: int
    error: float
    plain_error: float


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("attention", help="attention and its gradient under jax.jit and stitch_jit")
    parser.add_argument("--only", nargs="+", default=tuple(PROGRAMS), choices=tuple(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--small", action="store_true", help="short sequences alone: to try the benchmark itself")
    parser.add_argument("--rounds", type=int, default=15, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each program")
    parser.set_defaults(command=_run)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    jax.config.update("jax_platforms", "cpu")
    console, rows = Console(width=120), list[Row]()
    for shape in ((2, 64, 2, 32),) if options.small else USUAL:
        for name in options.only:
            console.print(f"... {name} {list(shape)}", highlight=False)
            rows.append(measured(name, shape, options.rounds))
            if options.json is not None:
                write_json(options.json, {"about": about("cpu"), "rows": [asdict(row) for row in rows]})
    console.print(table(rows), highlight=False)
    return 0


def measured(name: str, shape: Shape, rounds: int) -> Row:
    """Return the figures of a program at a size."""
    function, random = PROGRAMS[name], np.random.default_rng(0)
    values = [random.standard_normal(shape).astype(np.float32) for _ in range(3)]
    args = [jnp.asarray(v) for v in values]
    stitched = stitch_jit(function, mode="now")
    called: dict[str, Callable[..., Any]] = {
        "plain": jax.jit(function),
        "stitched": stitched,
        "again": jax.jit(lambda *a: function(*a)),
    }
    results = {kind: jax.block_until_ready(call(*args)) for kind, call in called.items()}
    samples: dict[str, list[float]] = {kind: [] for kind in called}
    for n in range(rounds):
        for kind in order(n):
            start = time.perf_counter()
            jax.block_until_ready(called[kind](*args))
            samples[kind].append(time.perf_counter() - start)
    row = row_of(name, samples)
    with jax.enable_x64(True):
        exact = jax.jit(function)(*(v.astype(np.float64) for v in values))
        errors = {kind: _error(results[kind], exact) for kind in ("plain", "stitched")}
    kernels = len(stitched.plan(*args).kernels)
    return Row(
        *(name, shape, row.plain, row.stitched, 1 / row.ratio, 1 / row.noise),
        *(kernels, errors["stitched"], errors["plain"]),
    )


def _error(results: Any, exact: Any) -> float:
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(exact), strict=True)
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b)).max()) for a, b in pairs)


def table(rows: Sequence[Row]) -> str:
    """Return the figures as text."""
    head = ("program", "batch, length, heads, size", "jax.jit", "stitched", "speed-up", "noise", "error", "jax.jit's")
    lines = [
        (
            *(r.program, " x ".join(map(str, r.shape)), format_seconds(r.plain), format_seconds(r.stitched)),
            *(f"{r.ratio:.2f}", f"{r.noise:.2f}", f"{r.error:.1e}", f"{r.plain_error:.1e}"),
        )
        for r in rows
    ]
    return text_table(head, lines, right=(2, 3, 4, 5, 6, 7))
