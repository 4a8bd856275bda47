"""A kernel's text, and the work of generating it, grow with its operations and no faster.

A chain of reductions computed in each pass all that the passes before it had, and a chain of scans read them all at
each step: texts grew with the square of the number of operations, to a megabyte for 800.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.emit import emit
from jax_stitch.fusion import explore
from jax_stitch.schedule import schedule
from tests.fusion import forced

SIZES = (4, 8, 16, 32, 64, 96)
X = np.ones((64, 256), np.float32)


def chain(x: jax.Array, count: int) -> jax.Array:
    y = x
    for k in range(count):
        y = jnp.tanh(y) * x + (k + 1.0)
    return y


def side_by_side(x: jax.Array, count: int) -> list[jax.Array]:
    return [jnp.sin(x * (k + 1.0)).sum(-1) for k in range(count)]


def reductions(x: jax.Array, count: int) -> jax.Array:
    y = x
    for _ in range(count):
        y = y - y.max(-1, keepdims=True) * 0.5
    return y


def scans(x: jax.Array, count: int) -> jax.Array:
    y = x
    for _ in range(count):
        y = jnp.cumsum(y, -1) * 0.1 + x
    return y


def joined(x: jax.Array, count: int) -> jax.Array:
    return jnp.concatenate([x[:, k : k + 2] * (k + 1.0) for k in range(count)], -1) + 1


def columns(x: jax.Array, count: int) -> jax.Array:
    y = x
    for _ in range(count):
        y = y * 0.5 + y.sum(0) * 0.01
    return y


def calls(work: Callable[[], Any]) -> tuple[Any, int]:
    """What work comes to, and how many calls it takes: as good as time, and the same on a busy machine."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        return work(), count
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("form", [chain, side_by_side, reductions, scans, joined, columns])
def test_at_most_linearly(form: Callable[..., Any], device: str) -> None:
    target = devices.get(device)
    nodes, length, work = [], [], []
    for count in SIZES:
        plan = forced.plan_of(forced.graph_of(lambda x, n=count: form(x, n), X), target)
        (kernel,) = plan.kernels
        scheduled, _ = calls(lambda p=plan, k=kernel: schedule(p.graph, k, target, "kernel"))
        source, made = calls(lambda s=scheduled: emit(s))
        nodes.append(len(plan.graph.nodes))
        length.append(len(source.text))
        work.append(made)
    for grown in (length, work):
        by_node = [n / nodes[k] for k, n in enumerate(grown)]
        # A pass computes a few of what others have again, as long as these are few.
        assert by_node[-1] < 1.2 * by_node[3] and by_node[-1] < 2.5 * by_node[0], (nodes, grown)


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_scans_by_pairs_beside_their_operand(device: str) -> None:
    """Planning such took minutes: all of it, from the graph to the text, takes seconds of the processor."""
    target = devices.get(device)

    def beside(x: jax.Array) -> Any:
        scanned = jax.lax.associative_scan(jnp.add, x, axis=-1)
        return scanned, x * 2, (scanned - x).sum(-1)

    began = time.process_time()
    plan = explore(forced.graph_of(beside, np.ones((2, 256), np.float32)), target)
    for kernel in plan.kernels:
        emit(schedule(plan.graph, kernel, target, "kernel"))
    assert time.process_time() - began < 40
