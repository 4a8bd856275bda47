"""A stitched function under JAX's transformations and inside its control flow, beside ``jax.jit``.

Derivatives and batched forms must be stitched again, which is seen in the kernels of the lowered text.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from tests.light import light
from tests.public_functions import W, X, softmax
from tests.public_losses import V, loss
from tests.side_by_side import both, both_raise, fallbacks, kernels

__all__ = ["light"]

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return softmax(x)


clipped.defvjp(lambda x: (softmax(x), x), lambda x, ct: (jnp.clip(ct, -0.1, 0.1) * x,))


@jax.custom_jvp
def surrogate(x: Any) -> Any:
    return jnp.where(x > 0, 1.0, 0.0)


surrogate.defjvps(lambda t, y, x: t * jnp.exp(-x * x))


def with_custom_vjp(x: Any, w: Any) -> Any:
    return jnp.sum(clipped(x * w) ** 2)


def with_custom_jvp(x: Any, w: Any) -> Any:
    return jnp.sum(surrogate(softmax(x, w) - 0.25) * w)


def with_scan(x: Any, w: Any) -> Any:
    final, every = jax.lax.scan(lambda c, _: (softmax(c * 2.0, w), c.sum()), x, length=3)
    return jnp.sum(final**2) + jnp.sum(every**2)


def with_while(x: Any, w: Any) -> Any:
    return jnp.sum(jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, softmax(c[1] * 2.0, w)), (0, x))[1] ** 2)


def with_cond(x: Any, w: Any) -> Any:
    return jnp.sum(jax.lax.cond(w[0] > 0, lambda x: softmax(x, w), lambda x: x * w, x) ** 2)


def with_checkpoint(x: Any, w: Any) -> Any:
    return jnp.sum(jax.checkpoint(lambda x: softmax(jnp.sin(softmax(x, w))))(x) ** 2)


def with_gather(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.take_along_axis(softmax(x, w), jnp.argmax(x, -1, keepdims=True), -1))


def with_key(x: Any, w: Any) -> Any:
    return jnp.sum(softmax(x, w) * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape))


def with_product(x: Any, w: Any) -> Any:
    return jnp.sum(softmax(x @ x.T) @ x * w)


LOSSES = {
    "plain": loss,
    "custom_vjp": with_custom_vjp,
    "custom_jvp": with_custom_jvp,
    "scan": with_scan,
    "cond": with_cond,
    "checkpoint": with_checkpoint,
    "gather": with_gather,
    "random": with_key,
    "product": with_product,
}


REVERSE: dict[str, Any] = {
    "grad": lambda f: jax.grad(f),
    "grad of both": lambda f: jax.grad(f, (0, 1)),
    "grad of the second": lambda f: jax.grad(f, 1),
    "value_and_grad": lambda f: jax.value_and_grad(f, (0, 1)),
    "jitted grad": lambda f: jax.jit(jax.grad(f, (0, 1))),
    "vjp": lambda f: lambda x, w: (lambda y, pull: (y, pull(jnp.float32(2.0))))(*jax.vjp(f, x, w)),
    "linearize": lambda f: lambda x, w: (lambda y, push: (y, push(V, W)))(*jax.linearize(f, x, w)),
}


FORWARD: dict[str, Any] = {
    "jvp": lambda f: lambda x, w: jax.jvp(f, (x, w), (V, W)),
    "jvp of the first": lambda f: lambda x, w: jax.jvp(lambda x: f(x, w), (x,), (V,)),
    "jitted jvp": lambda f: jax.jit(lambda x, w: jax.jvp(f, (x, w), (V, W))),
    "jacfwd": lambda f: jax.jacfwd(f, 1),
}


@pytest.mark.parametrize("transform", REVERSE | FORWARD)
def test_derivatives(transform: str) -> None:
    both(loss, X, W, transform=(REVERSE | FORWARD)[transform], calls=1)


@pytest.mark.parametrize("function", LOSSES)
def test_reverse(function: str) -> None:
    both(LOSSES[function], X, W, transform=REVERSE["value_and_grad"], calls=1)


@pytest.mark.parametrize("function", [*(f for f in LOSSES if f != "custom_vjp"), "while"])
def test_forward(function: str) -> None:
    both(LOSSES.get(function, with_while), X, W, transform=FORWARD["jvp"], calls=1)


HIGHER: dict[str, Any] = {
    "hessian": lambda f: jax.hessian(f, 1),
    "grad of grad": lambda f: jax.grad(lambda x, w: jnp.sum(jax.grad(f)(x, w) ** 2), 1),
    "jacrev of grad": lambda f: jax.jacrev(jax.grad(f, 1), 1),
    "Hessian times vector": lambda f: lambda x, w: jax.jvp(jax.grad(f), (x, w), (V, W))[1],
    "jvp of jvp": lambda f: lambda x, w: jax.jvp(lambda x: jax.jvp(lambda x: f(x, w), (x,), (V,))[1], (x,), (V,)),
    "vjp of linearize": lambda f: jax.grad(lambda x, w: jax.linearize(lambda x: f(x, w), x)[1](V)),
    "third": lambda f: lambda x, w: jax.jvp(lambda w: jax.hessian(f, 1)(x, w), (w,), (W,)),
}


SLOW = {"hessian", "grad of grad", "third", "jacrev of grad", "vjp of linearize", "vmap of hessian"}


"""A dozen kernels each."""


def marked(cases: dict[str, Any]) -> list[Any]:
    return [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in cases]


@pytest.mark.parametrize("transform", marked(HIGHER))
def test_higher(transform: str) -> None:
    both(loss, X, W, transform=HIGHER[transform], calls=1)


def with_aux_and_integers(x: Any, w: Any, n: Any) -> Any:
    y = softmax(x, w)
    return jnp.sum(y * n) + n.sum(), {"y": y, "argmax": jnp.argmax(y, -1)}


def test_auxiliary_results_and_integers() -> None:
    fun, args = with_aux_and_integers, (X, W, jnp.arange(4))
    both(fun, *args, transform=lambda f: jax.value_and_grad(f, (0, 2), has_aux=True, allow_int=True), calls=1)


@pytest.mark.slow
def test_auxiliary_results_and_integers_otherwise() -> None:
    fun, args = with_aux_and_integers, (X, W, jnp.arange(4))
    both(fun, *args, transform=lambda f: jax.value_and_grad(f, (0, 1), has_aux=True))
    both(fun, *args, transform=lambda f: lambda x, w, n: jax.jvp(lambda x: f(x, w, n)[0], (x,), (V,)), calls=1)


def test_results_that_do_not_depend_on_what_varies() -> None:
    both(independent, X, W, transform=lambda f: lambda x, w: jax.jvp(lambda x: f(x, w), (x,), (V,)), calls=1)


def independent(x: Any, w: Any) -> Any:
    return softmax(x).sum(), softmax(w), w, jnp.arange(3)


@pytest.mark.slow
def test_cotangents_of_some_results() -> None:
    fun = independent
    both(fun, X, W, transform=lambda f: jax.grad(lambda x, w: f(x, w)[0] + f(x, w)[1].sum(), (0, 1)), calls=1)


def test_pytrees_of_parameters() -> None:
    params = {"w": W, "b": [W * 2, None], "scale": 2.0}

    def fun(params: Any, x: Any) -> Any:
        return jnp.sum(softmax(x * params["w"] + params["b"][0]) ** params["scale"])

    both(
        fun,
        params,
        X,
        transform=lambda f: jax.jit(lambda p, x: jax.tree.map(jnp.subtract, p, jax.grad(f)(p, x))),
        calls=1,
    )


def test_donated_and_static_under_a_gradient() -> None:
    options = {"donate_argnums": 0, "static_argnums": 1}
    both(lambda x, n: jnp.sum(softmax(x) ** n), X, 3, transform=jax.grad, calls=1, **options)


def test_errors_of_differentiation_are_those_of_jit() -> None:
    both_raise(lambda jit: jax.jvp(jit(with_custom_vjp), (X, W), (V, W)))
    both_raise(lambda jit: jax.linearize(jit(with_custom_vjp), X, W)[1](V, W))
    both_raise(lambda jit: jax.jit(lambda: jax.jvp(jit(with_custom_vjp), (X, W), (V, W)))())
    both_raise(lambda jit: jax.grad(jit(with_while))(X, W))
    both_raise(lambda jit: jax.grad(jit(lambda x: x > 0))(1.0))


def test_forward_and_backward_run_stitched_kernels() -> None:
    stitched = stitch_jit(loss)
    assert kernels(stitched, X, W) >= 1
    backward = kernels(lambda x, w: jax.vjp(stitched, x, w)[1](1.0), X, W)
    assert kernels(jax.value_and_grad(stitched, (0, 1)), X, W) >= 2 and backward >= 1
    assert kernels(lambda x, w: jax.jvp(stitched, (x, w), (V, W)), X, W) >= 2
    assert kernels(jax.vmap(jax.grad(stitched), (0, None)), jnp.stack([X, V]), W) >= 2


@pytest.mark.slow
def test_batched_forms_run_stitched_kernels() -> None:
    stitched = stitch_jit(loss)
    assert kernels(jax.vmap(stitched, (0, None)), jnp.stack([X, V]), W) >= 1
    assert kernels(jax.grad(lambda x: jnp.sum(jax.vmap(stitched, (0, None))(x, W))), jnp.stack([X, V])) >= 2


def test_what_is_not_needed_is_not_computed() -> None:
    """Unused results are pruned through the operation, as JAX prunes inside ``jax.jit``."""
    both_results = stitch_jit(lambda x, w: (softmax(x), jnp.sort(w)))
    assert "sort" in jax.jit(both_results).lower(X, W).as_text()
    assert "sort" not in jax.jit(lambda x, w: both_results(x, w)[0]).lower(X, W).as_text()


BATCHED: dict[str, Any] = {
    "vmap": lambda f: lambda x, w: jax.vmap(f, (0, None))(jnp.stack([x, V]), w),
    "of the second": lambda f: lambda x, w: jax.vmap(f, (None, 0))(x, jnp.stack([w, w + 1])),
    "of both": lambda f: lambda x, w: jax.vmap(f)(jnp.stack([x, V]), jnp.stack([w, w + 1])),
    "along the last axis": lambda f: lambda x, w: jax.vmap(f, (2, None))(jnp.stack([x, V], 2), w),
    "along different axes": lambda f: lambda x, w: jax.vmap(f, (1, 0), 1)(jnp.stack([x, V], 1), jnp.stack([w, w])),
    "out_axes": lambda f: lambda x, w: jax.vmap(f, (0, None), 2)(jnp.stack([x, V]), w),
    "in_axes -1": lambda f: lambda x, w: jax.vmap(f, (-1, None), -1)(jnp.stack([x, V], -1), w),
    "nested": lambda f: lambda x, w: jax.vmap(jax.vmap(f, (0, None)), (None, 0))(jnp.stack([x, V]), jnp.stack([w] * 3)),
    "axis_name": lambda f: lambda x, w: jax.vmap(f, (0, None), axis_name="i")(jnp.stack([x, V]), w),
    "of one": lambda f: lambda x, w: jax.vmap(f, (0, None))(x[None], w),
    "of none": lambda f: lambda x, w: jax.vmap(f, (0, None))(jnp.zeros((0, 3, 4)), w),
    "jitted": lambda f: lambda x, w: jax.jit(jax.vmap(f, (0, None)))(jnp.stack([x, V]), w),
    "lax.map": lambda f: lambda x, w: jax.lax.map(lambda x: f(x, w), jnp.stack([x, V])),
    "lax.map in batches": lambda f: lambda x, w: jax.lax.map(lambda x: f(x, w), jnp.stack([x, V, x]), batch_size=2),
    "jnp.vectorize": lambda f: jnp.vectorize(f, signature="(n),(n)->(n)"),
}


@pytest.mark.parametrize("transform", BATCHED)
def test_batched(transform: str) -> None:
    both(softmax, X, W, transform=BATCHED[transform], calls=1)


BATCHED_DERIVATIVES: dict[str, Any] = {
    "vmap of grad": lambda f: lambda x, w: jax.vmap(jax.grad(f, (0, 1)), (0, None))(jnp.stack([x, V]), w),
    "grad of vmap": lambda f: jax.grad(lambda x, w: jax.vmap(f, (None, 0))(x, jnp.stack([w, 2 * w])).sum(), (0, 1)),
    "vmap of jvp": lambda f: lambda x, w: jax.vmap(lambda t: jax.jvp(lambda x: f(x, w), (x,), (t,)))(jnp.stack([V, x])),
    "vmap of vjp": lambda f: lambda x, w: jax.vmap(jax.vjp(f, x, w)[1])(jnp.arange(3.0)),
    "grads of examples": lambda f: lambda x, w: jax.vmap(jax.grad(lambda w, x: f(x[None], w)), (None, 0))(w, x),
    "vmap of hessian": lambda f: lambda x, w: jax.vmap(jax.hessian(f, 1), (0, None))(jnp.stack([x, V]), w),
}


@pytest.mark.parametrize("transform", marked(BATCHED_DERIVATIVES))
def test_batched_derivatives(transform: str) -> None:
    both(loss, X, W, transform=BATCHED_DERIVATIVES[transform], calls=1)


def test_a_result_that_is_not_batched_stays_so() -> None:
    """``out_axes=None`` is refused by JAX for a result that is marked as batched."""

    def fun(x: Any, w: Any) -> Any:
        return softmax(x, w), softmax(w), jnp.arange(3)

    both(fun, X, W, transform=lambda f: lambda x, w: jax.vmap(f, (0, None), (0, None, None))(jnp.stack([x, V]), w))


def test_batched_keys() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    both(lambda k: softmax(jax.random.normal(k, (2, 4))), keys, transform=jax.vmap)


def test_a_batch_is_one_kernel_not_many() -> None:
    one, many = jnp.stack([X, V]), jnp.stack([X] * 16)
    stitched = jax.vmap(stitch_jit(softmax), (0, None))
    assert kernels(stitched, one, W) == kernels(stitched, many, W) == 1


def test_collectives_over_a_mapped_axis() -> None:
    """Such a function is nothing by itself; it is stitched once it is mapped."""

    def fun(x: Any) -> Any:
        return softmax(x - jax.lax.pmean(x, "i"))

    with fallbacks() as messages:
        both(fun, jnp.stack([X, V]), transform=lambda f: jax.vmap(f, axis_name="i"))
    assert not messages
