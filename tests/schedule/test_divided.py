"""On a GPU, results of one pattern that have nothing in common are parts of their own, each of few arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.pipeline import Stitched
from jax_stitch.schedule.divided import MOST_READ, MOST_SUMS
from tests.fusion import forced

H200, CPU = forced.device("h200"), forced.device("cpu", multiprocessors=2)
COUNT = 24


def steps(parameters: list[Any], gradients: list[Any], rows: list[Any], rate: Any) -> Any:
    """Tensors that share a rate, and sums of others beside them."""
    scale = jnp.sqrt(rate) / (1.0 + rate)
    moved = [p - scale * jnp.tanh(g) for p, g in zip(parameters, gradients, strict=True)]
    return moved, [(r * scale).sum(-1) for r in rows]


def arguments(rows: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)

    def some(count: int, *dims: int) -> list[np.ndarray]:
        return [rng.standard_normal(dims).astype(np.float32) for _ in range(count)]

    return some(COUNT, rows), some(COUNT, rows), some(2, rows, 33), np.float32(0.3)


def made(args: tuple[Any, ...]) -> Stitched:
    return forced.stitched(forced.hlo_of(steps, *args), H200)


def test_parts_read_and_sum_little() -> None:
    """One part of 48 tensors took turns, with its registers spilled, in the threads of rows of two sums."""
    stitched = made(arguments(256))
    (kernel,) = stitched.kernels
    graph = kernel.scheduled.graph
    reduce = {p: sum(graph[i].op == "reduce" for i in p.pattern.nodes) for p in kernel.scheduled.parts}
    assert len(reduce) > 2
    assert sorted(set(reduce.values())) == [0, 2]
    for part, sums in reduce.items():
        assert len([i for i in part.pattern.inputs if graph[i].tensor.size > 1]) <= MOST_READ
        assert sums <= MOST_SUMS
    written = [i for part in kernel.scheduled.parts for i in part.pattern.outputs]
    assert sorted(written) == sorted(set(written)), "written by two parts"


def test_each_node_is_of_one_part() -> None:
    (kernel,) = made(arguments(256)).kernels
    nodes = [i for part in kernel.scheduled.parts for i in part.pattern.nodes]
    assert len(nodes) == len(set(nodes))


def test_a_result_that_another_is_made_of_is_written_once() -> None:
    """The other's part came first and had it as its own: nobody wrote it."""

    def fun(xs: list[Any], rate: Any) -> Any:
        scale = jnp.sqrt(rate) / (1.0 + rate)
        turned = [x[:, ::-1] for x in xs]
        return [jnp.tanh(scale * t[:, :2]) for t in turned], turned, [(scale * x).sum(-1) for x in xs]

    xs = [np.random.default_rng(k).standard_normal((256, 4)).astype(np.float32) for k in range(COUNT)]
    stitched = forced.stitched(forced.hlo_of(fun, xs, np.float32(0.3)), H200)
    (kernel,) = stitched.kernels
    assert 2 < len(kernel.scheduled.parts) < COUNT
    assert all(set(part.pattern.outputs) <= part.pattern.nodes for part in kernel.scheduled.parts)
    wanted = jax.tree.leaves(fun(xs, np.float32(0.3)))
    for got, want in zip(forced.run(stitched, [*xs, np.float32(0.3)]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_results() -> None:
    args = arguments(200)
    wanted = jax.tree.leaves(steps(*args))
    for got, want in zip(forced.run(made(args), jax.tree.leaves(args)), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_norms_of_an_optimizer_are_read_in_vectors() -> None:
    """LAMB's norms, with moments on the way: one part of all tensors read 4 bytes at a time, with each tensor's sums in
    registers."""

    def norms(gradients: list[Any], moments: list[Any]) -> Any:
        moved = [0.9 * m + 0.1 * g for m, g in zip(moments, gradients, strict=True)]
        return moved, [jnp.sqrt((v * v).sum()) for v in moved], [jnp.abs(g).sum() for g in gradients]

    rng = np.random.default_rng(1)
    some = [rng.standard_normal((1024, 512)).astype(np.float32) for _ in range(12)]
    args = some[:6], some[6:]
    stitched = forced.stitched(forced.hlo_of(norms, *args), H200)
    parts = [p for k in stitched.kernels for p in k.scheduled.parts if p.pattern.blocks is not None]
    assert len(parts) > 2
    assert {p.split.row_vector for p in parts} == {4}
    wanted = jax.tree.leaves(norms(*args))
    for got, want in zip(forced.run(stitched, jax.tree.leaves(args)), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def trusted(parameters: list[Any], updates: list[Any], count: Any) -> Any:
    """LAMB's last step: each tensor's update by the ratio of two norms, and a rate that all share."""
    rate = 0.1 * jnp.power(count + 1.0, -0.8)

    def step(p: Any, u: Any) -> Any:
        ratio = jnp.sqrt((p * p).sum()) / jnp.sqrt((u * u).sum())
        return p - rate * ratio * u

    return [step(p, u) for p, u in zip(parameters, updates, strict=True)]


def tensors(rows: int, columns: int = 256) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    some = [rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(12)]
    return some[:6], some[6:], np.float32(3)


def test_tensors_of_a_cpu_are_tasks_of_their_own_and_compiled_once() -> None:
    """One thread did all tensors, whose texts differed in names alone."""
    args = tensors(128)
    stitched = forced.stitched(forced.hlo_of(trusted, *args), CPU)
    (kernel,) = stitched.kernels
    assert len(kernel.scheduled.parts) == 6
    assert {p.split.blocks for p in kernel.scheduled.parts} == {1}
    assert kernel.source.code.count("ST_PART") == 1
    for got, want in zip(forced.run(stitched, jax.tree.leaves(args)), trusted(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 8, 128])
def test_tensors_alike_are_compiled_once_whatever_they_hold(rows: int) -> None:
    """Biases shared a task, and the compiler had six loops for each pass; what they have in common, the rate, made the
    first another kernel than the rest.
    """
    (kernel,) = forced.stitched(forced.hlo_of(trusted, *tensors(rows)), CPU).kernels
    assert len(kernel.scheduled.parts) == 6 and kernel.source.code.count("ST_PART") == 1


def test_tiny_tensors_of_a_cpu_share_a_task() -> None:
    """A block for each would take longer to start than to run."""
    (kernel,) = forced.stitched(forced.hlo_of(trusted, *tensors(2, 16)), CPU).kernels
    assert len(kernel.scheduled.parts) == 1


def test_the_largest_of_tensors_alike_come_first() -> None:
    """Threads that take blocks one by one end at about the same time."""

    def all_(small: Any, large: Any, count: Any) -> Any:
        return trusted(*small, count), trusted(*large, count)

    small, large = tensors(1), tensors(64)
    hlo = forced.hlo_of(all_, small[:2], large[:2], np.float32(3))
    (kernel,) = forced.stitched(hlo, CPU).kernels
    sizes = [sum(kernel.scheduled.graph[i].tensor.size for i in p.pattern.outputs) for p in kernel.scheduled.parts]
    assert len(sizes) == 12 and sizes == sorted(sizes, reverse=True)


def test_what_reads_one_array_stays_together() -> None:
    """Each part would read it once more."""

    def fun(x: Any) -> Any:
        return [jnp.tanh(x * n).sum(-1) for n in range(1, 2 * MOST_SUMS)]

    x = np.ones((64, 40), np.float32)
    for kernel in forced.stitched(forced.hlo_of(fun, x), H200).kernels:
        assert len(kernel.scheduled.parts) == 1


def test_moves_of_moves_are_gone_through_once() -> None:
    """Halves of halves put together again: ways through them are many more than nodes."""

    def fun(x: Any, others: list[Any]) -> Any:
        y = x
        for _ in range(40):
            y = jnp.concatenate([y[1:], y[:1]])
        return [y * 2.0, *(o + 1.0 for o in others)]

    others = [np.full(512, n, np.float32) for n in range(2 * MOST_READ)]
    x = np.arange(512, dtype=np.float32)
    stitched = forced.stitched(forced.hlo_of(fun, x, others), H200)
    for got, want in zip(forced.run(stitched, [x, *others]), fun(x, others), strict=True):
        np.testing.assert_array_equal(got, want)
