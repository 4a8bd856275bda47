"""Products of any size outside loops, as kernels whose rows are shared out over the cores of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.patterns.pattern import FusionPlan, Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion import planner
from jax_stitch.loops.teams.sharing import shared_out
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.kernel.agreement import assert_close, flat, interpreted

Function = Callable[..., Any]


def normal(seed: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims)


def cell(x: Any, h: Any, w: Any, u: Any, b: Any) -> Any:
    """Two products that are added, and what is made of parts of the sum."""
    i, f, g = jnp.split(x @ w + h @ u + b, 3, -1)
    return jnp.tanh(g) * jax.nn.sigmoid(i) + h * jax.nn.sigmoid(f)


def waiting(x: Any, w: Any, u: Any) -> Any:
    """Two products whose epilogues would wait for each other, if they were as large as could be."""
    a, b = x @ w, x @ u
    later = jnp.tanh(a) * b.sum() + b
    return later, jnp.exp(-b * b) + a.sum()


def twice_turned(w: Any, x: Any) -> Any:
    """A transposed matrix that two products read, the second of which waits for the first."""
    return w.T @ jnp.sin(w.T @ x)


def least_squares(a: Any, x: Any, b: Any) -> Any:
    return jax.value_and_grad(lambda x: jnp.sum((a @ x - b) ** 2))(x)


def rectified(x: Any, *layers: Any) -> Any:
    """Layers that all read one array of zeros."""
    for w in layers:
        x = jax.nn.relu(x @ w.T)
    return x


PROGRAMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "matrix by vector": (lambda w, x: jnp.tanh(w @ x + 1), ((48, 40), (40,))),
    "transposed by vector": (lambda w, x: jnp.tanh(w.T @ x + 1), ((48, 40), (48,))),
    "vector by transposed": (lambda w, x: jnp.tanh(x @ w.T + 1), ((48, 40), (40,))),
    "of prime sizes": (lambda x, w: x @ w, ((7, 53), (53, 37))),
    "bias by column": (lambda x, w, b: jax.nn.gelu(x @ w + b), ((6, 40), (40, 64), (64,))),
    "bias by row": (lambda x, w, b: x @ w + b[:, None], ((32, 40), (40, 64), (32,))),
    "both along the sum": (lambda x, w: jnp.einsum("ik,jk->ij", x, w) * 2, ((40, 24), (64, 24))),
    "few by both along the sum": (lambda x, w: jnp.einsum("ik,jk->ij", x, w) * 2, ((3, 64), (64, 64))),
    "both across the sum": (lambda x, w: jnp.einsum("ki,kj->ij", x, w) * 2, ((24, 40), (24, 64))),
    "a batch": (lambda x, w: jnp.einsum("bik,bkj->bij", x, w) * 2, ((4, 12, 24), (4, 24, 32))),
    "a batch, both along the sum": (lambda x, w: jnp.einsum("bik,bjk->bij", x, w) * 2, ((4, 12, 24), (4, 32, 24))),
    "by heads": (lambda x, w: jnp.einsum("btd,dhe->bthe", x, w) * 2, ((2, 16, 24), (24, 4, 16))),
    "cell": (cell, ((6, 32), (6, 32), (32, 96), (32, 96), (96,))),
    "waiting": (waiting, ((8, 32), (32, 48), (32, 48))),
    "twice turned": (twice_turned, ((40, 40), (40,))),
    "least squares": (least_squares, ((60, 40), (40,), (60,))),
    "rectified": (rectified, ((9, 32), (48, 32), (48, 48), (48, 48))),
    "in float64": (lambda x, w: jnp.tanh(x @ w), ((33, 64), (64, 48))),
}


def of(name: str) -> tuple[Function, tuple[Any, ...]]:
    fun, sizes = PROGRAMS[name]
    dtype = np.float64 if name == "in float64" else np.float32
    return fun, tuple((normal(k, *dims) / 4).astype(dtype) for k, dims in enumerate(sizes))


def few_left(plan: FusionPlan, _: object) -> float:
    """As if kernels of products took no time."""
    return 1.0 - len(products(plan))


def products(plan: FusionPlan) -> list[Pattern]:
    patterns = [p for kernel in plan.kernels for p in kernel]
    return [p for p in patterns if isinstance(p.loop, TeamLoop) and any(n.op == "dot" for n in p.loop.body.nodes)]


def made(name: str, device: str = "cpu") -> tuple[Stitched, tuple[Any, ...]]:
    """The kernels of a program whose products are all shared out over rows, whether or not that pays."""
    fun, args = of(name)
    forced = mock.patch.multiple(
        planner, call_seconds=few_left, seconds_of=lambda *_: 0.0, straight_patterns=lambda *_: []
    )
    with forced:
        return stitch_capture(capture(fun, args, devices.get(device)), devices.get(device)), args


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_agree(name: str) -> None:
    """Catches a part of a factor that is another row's, a copy that is read before it is there, and kernels that wait
    for each other.
    """
    with jax.enable_x64(name == "in float64"):
        stitched, args = made(name)
        assert not stitched.refused
        taken = {i for p in products(stitched.plan) for i in p.nodes}
        assert not [n for n in stitched.plan.graph.nodes if n.op == "dot" and n.id not in taken]
        want = flat(jax.jit(of(name)[0])(*args))
        assert_close(interpreted(stitched, args), want, f"{name} by the interpreter")
        assert_close(flat(stitched.compile("host")(args)), want, name)


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("bias by column", 1),  # the product, the bias and the function
        ("by heads", 1),
        ("cell", 1),  # both products and the sum of them
        ("twice turned", 2),  # one waits for all of the other
        ("rectified", 3),
    ],
)
def test_what_follows_a_product_is_in_its_kernel(name: str, kernels: int) -> None:
    stitched, _ = made(name)
    assert len(products(stitched.plan)) == kernels
    if name != "cell":  # What is made of a third of the sum is in other places.
        assert len(stitched.kernels) == kernels


@pytest.mark.usefixtures("zen4")
def test_what_is_one_number_everywhere_is_handed_to_nobody() -> None:
    """The zeros that all layers compare with: 4 MB to write and to read for a large layer."""
    stitched, _ = made("rectified")
    for p in products(stitched.plan):
        assert not [i for i in (*p.inputs, *p.outputs) if stitched.plan.graph[i].op == "broadcast"]


@pytest.mark.usefixtures("zen4")
def test_several_sums_hide_what_one_waits_for() -> None:
    """A matrix by a vector, a row of which is one sum: eight of them at a time, and one after the other where the rows
    are a prime number.
    """
    for rows, wide in ((1024, 8), (1031, 1)):
        shapes = [jax.ShapeDtypeStruct(dims, np.float32) for dims in ((rows, 1024), (1024,))]
        device = devices.get("zen4")
        with mock.patch.multiple(planner, call_seconds=few_left, seconds_of=lambda *_: 0.0):
            plan = stitch_capture(capture(lambda w, x: jnp.tanh(w @ x), shapes, device), device).plan
        (pattern,) = products(plan)
        assert isinstance(pattern.loop, TeamLoop)
        sweeps = [s for group in shared_out(pattern.loop, device)[1] for s in group]
        assert [(s.sharing.split > 1, s.sharing.wide) for s in sweeps if s.reduces] == [(True, wide)]
        # The function is computed for vectors of places, once all sums are there.
        assert [[pattern.loop.body[w.node].op for w in s.writes] for s in sweeps] == [["dot"], ["tanh"]]


TAKEN: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "transposed by vector": (lambda w, x: w.T @ x, ((1024, 1024), (1024,))),
    "small batch": (lambda x, w, b: jax.nn.relu(x @ w + b), ((8, 512), (512, 512), (512,))),
    "small batch, by rows": (lambda x, w, b: jax.nn.relu(x @ w.T + b), ((8, 512), (512, 512), (512,))),
}
LEFT: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "large": (lambda x, w: x @ w, ((1024, 1024), (1024, 1024))),
    "integers": (lambda x, w: x.astype(int) @ w.astype(int), ((8, 512), (512, 512))),
}


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_what_pays_is_taken(name: str) -> None:
    fun, sizes = (TAKEN | LEFT)[name]
    plan = stitch_jit(fun, mode="now").plan(*(jax.ShapeDtypeStruct(dims, np.float32) for dims in sizes))
    assert len(plan.kernels) == (name in TAKEN)


def test_nothing_of_a_gpu_is_in_rows() -> None:
    """XLA's library has all of its cores multiply."""
    stitched, _ = made("bias by column", "h200")
    assert not products(stitched.plan)


@pytest.mark.usefixtures("zen4")
def test_large_products_of_a_loop_that_xla_runs_are_kernels() -> None:
    """A cell whose weights fill no core's cache: no team takes it, and its values alone would stay in the cache."""

    def cells(h: Any, xs: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0]

    sizes = ((16, 1024), (50, 16, 1024), (1024, 1024))
    plan = stitch_jit(cells, mode="now").plan(*(jax.ShapeDtypeStruct(dims, np.float32) for dims in sizes))
    assert [k for k in plan.kernels if "dot" in k.source or "ST_PRODUCT" in k.source]
