"""Kernels of every kind in the kernel language: straight code, loops in threads, loops in teams, clusters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.workloads import loop_programs
from jax_stitch.emit import kernel_of
from jax_stitch.kernel.model import Kernel
from jax_stitch.schedule.model import ScheduledKernel
from tests.clusters import laid_out
from tests.drawn import program
from tests.fusion import forced
from tests.loops import block_programs, test_programs

RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32))


def whole(high: int, *shape: int) -> jax.Array:
    return jax.device_put(RNG.integers(0, high, shape).astype(np.int32))


def _standardised(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5)


def _of_columns_and_rows(x: Any) -> Any:
    y = x - x.mean(1, keepdims=True)
    return y / (1 + jnp.abs(y).sum((1, 2), keepdims=True))


Program = tuple[Callable[..., Any], tuple[Any, ...]]

STRAIGHT: dict[str, Program] = {
    "standardised": (_standardised, (normal(33, 100),)),
    "by columns": (lambda x: (x - x.mean(0)) / x.std(0), (normal(300, 100),)),
    "gradient of a scale": (lambda x, g: ((_standardised(x) * g).sum(0), x * 2), (normal(65, 64), normal(65, 64))),
    "middle": (lambda x: x.sum(1) + x.max(1), (normal(9, 16, 40),)),
    "two of three": (lambda x: x.sum((0, 2)) * 2, (normal(9, 16, 40),)),
    "inner reduction": (_of_columns_and_rows, (normal(40, 7, 30),)),
    "long": (lambda x: x.sum(1), (normal(2, 30_000),)),
    "half precision": (lambda x: jax.nn.softmax(x, 1), (normal(40, 300).astype(jnp.bfloat16),)),
    "sort": (lambda x: jnp.sort(x, axis=-1) * 2, (normal(33, 100),)),
    "sort of columns": (lambda x: jnp.sort(x, axis=0) + 1, (normal(70, 40),)),
    "stable sort": (lambda x: (jnp.argsort(x, axis=1), x.sum(1)), (normal(20, 300),)),
    "two keys": (lambda x, y: jax.lax.sort((x, y, x * y), dimension=1, num_keys=2), (normal(9, 77), normal(9, 77))),
    "the least": (lambda x: jnp.sort(x, axis=1)[:, :5] * 2, (normal(16, 200),)),
    "square sort": (lambda x: jnp.sort(x, axis=1) * 2, (normal(48, 48),)),
    "square scan": (lambda x: jnp.cumsum(x, axis=1) * 2, (normal(48, 48),)),
    "square sum": (lambda x: x.sum(1) * 2, (normal(48, 48),)),
    "scan": (lambda x: jnp.cumsum(x, axis=1) * 2, (normal(40, 300),)),
    "scan of columns": (lambda x: jnp.cumsum(jnp.exp(x), axis=0) * 2, (normal(40, 70),)),
    "scan backward": (lambda x: jax.lax.cummax(x, axis=1, reverse=True) + x.sum(1, keepdims=True), (normal(9, 300),)),
    "where the most is": (lambda x: (jnp.argmax(x, 1), jnp.max(x, 1)), (normal(40, 300),)),
    "concatenated": (lambda x, y: jnp.concatenate([x, y, x * 2], 1) * 3, (normal(40, 30), normal(40, 51))),
    "padded": (lambda x: jnp.pad(x, ((2, 3), (1, 4))) * 2, (normal(40, 30),)),
    "gathered": (lambda x, i: x[i] * 2 + 1, (normal(40, 30), whole(40, 70))),
    "a table": (lambda x: x * jnp.asarray(np.linspace(0, 1, 30, dtype=np.float32) ** 2), (normal(40, 30),)),
    "counted": (lambda x: x * jnp.arange(30, dtype=jnp.float32), (normal(40, 30),)),
}
LARGE: dict[str, Program] = {
    "in memory order": (lambda x: ((x * x).sum(1), jnp.abs(x).sum() * 2), (normal(9, 300),)),
    "in runs": (lambda x, a, b: jnp.abs(x * a[:, None] * b).sum() * 2, (normal(16, 64), normal(16), normal(64))),
    "large": (lambda x: x * 2, (jax.ShapeDtypeStruct((70_000, 40_000), jnp.float32),)),
}
"""Never run."""
TEAMS: dict[str, Program] = {
    "lstm": (block_programs.lstm, block_programs.lstm_arguments(6, 32, 5)),
    "gru": (block_programs.gru, block_programs.gru_arguments(5, 30, 7)),
    "logistic regression": (
        block_programs.logistic_regression,
        block_programs.logistic_regression_arguments(9, 50, 30),
    ),
    "spread": (block_programs.logistic_regression, block_programs.logistic_regression_arguments(9, 512, 784)),
    "long sums": (block_programs.long_sums, (normal(3, 300, 17), normal(17, 300))),
    "word2vec": (block_programs.word2vec, block_programs.word2vec_arguments(5, 12, 40, 8, 4)),
}
THREADS = [n for n in test_programs.CASES if n not in test_programs.ON_EDGE]
NAMES = [*STRAIGHT, *TEAMS, *THREADS]
DEVICES = ("cpu", "h200")


def example(name: str) -> Program:
    """The function of a name, and its arguments."""
    found = STRAIGHT.get(name) or TEAMS.get(name) or LARGE.get(name)
    if name == "autoregressive":  # Of 100,000 steps elsewhere.
        return loop_programs.autoregressive, (jnp.float32(0.2), normal(500), test_programs.WEIGHTS)
    return found if found is not None else test_programs.CASES[name]()


@functools.cache
def scheduled(name: str, device: str) -> tuple[ScheduledKernel, ...]:
    """The kernels of a function, as they are laid out."""
    function, args = example(name)
    made = forced.stitched(forced.hlo_of(function, *args), forced.device(device))
    return tuple(k.scheduled for k in made.kernels)


@functools.cache
def kernels(name: str, device: str) -> tuple[Kernel, ...]:
    """The kernels of a function."""
    return tuple(map(kernel_of, scheduled(name, device)))


def random_kernels(seed: int, device: str) -> tuple[Kernel, ...]:
    """Those of a random program."""
    target = forced.device(device)
    with jax.enable_x64(True):
        made = program(Random(seed), steps=14)
        built = forced.graph_of(made.fun, *made.args)
    return tuple(map(kernel_of, forced.scheduled(forced.plan_of(built, target, seed), target)))


def cluster_kernels(name: str, cluster: int = 2) -> tuple[Kernel, ...]:
    """Those of a function whose rows clusters of blocks take together."""
    made = laid_out.made(name, laid_out.arguments(name, 3, 5000, np.float32), cluster)
    return tuple(kernel_of(k.scheduled) for k in made.stitched.kernels)
