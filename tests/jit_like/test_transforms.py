"""A jitted function under JAX's transformations, and with transformations inside: ``jax.jit`` beside ``stitch_jit``."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.jet import jet

from jax_stitch import stitch_jit
from tests.jit_like.outcomes import SQUARE, Program, V, W, X, raises, returns, softmax
from tests.light import light
from tests.side_by_side import kernels

__all__ = ["light"]

MANY = jnp.stack([X, V])
AXIS: dict[str, Any] = {"axis_name": "i"}


def loss(x: Any) -> Any:
    return jnp.sum(softmax(x) * V)


def of_both(x: Any, w: Any) -> Any:
    return jnp.sum(softmax(x) * w)


def with_aux(x: Any) -> Any:
    y = softmax(x)
    return jnp.sum(y * V), {"y": y, "largest": jnp.argmax(y, -1)}


def mean_over_axis(x: Any) -> Any:
    return softmax(x - jax.lax.pmean(x, "i"))


@jax.custom_jvp
def own_jvp(x: Any) -> Any:
    return softmax(x)


own_jvp.defjvp(lambda primals, tangents: (softmax(primals[0]), tangents[0] * 3.0))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def own_vjp(x: Any, scale: float) -> Any:
    return softmax(x)


own_vjp.defvjp(lambda x, scale: (softmax(x), x), lambda scale, x, ct: (ct * scale * x,))


@jax.custom_batching.custom_vmap
def own_batching(x: Any) -> Any:
    return softmax(x)


own_batching.def_vmap(lambda size, batched, x: (softmax(x) * 2, True))


DERIVATIVES: dict[str, Program] = {
    "grad": lambda jit: jax.grad(jit(loss))(X),
    "grad twice called": lambda jit: [g := jax.grad(jit(loss)), g(X), g(V)][1:],
    "grad inside": lambda jit: jit(jax.grad(loss))(X),
    "grad on both sides": lambda jit: jit(jax.grad(jit(loss)))(X),
    "argnums": lambda jit: jax.grad(jit(of_both), argnums=(0, 1))(X, W),
    "argnums -1": lambda jit: jax.grad(jit(of_both), argnums=-1)(X, W),
    "value_and_grad": lambda jit: jax.value_and_grad(jit(loss))(X),
    "aux": lambda jit: jax.value_and_grad(jit(with_aux), has_aux=True)(X),
    "aux inside": lambda jit: jit(jax.grad(with_aux, has_aux=True))(X),
    "of a tree": lambda jit: jax.grad(jit(lambda t: loss(t["a"] * t["b"][0])))({"a": X, "b": [W]}),
    "of a Python float": lambda jit: jax.grad(jit(lambda x: x * jnp.sin(x)))(2.0),
    "allow_int": lambda jit: jax.grad(jit(lambda x, n: loss(x) * 1.0), (0, 1), allow_int=True)(X, jnp.arange(3)),
    "holomorphic": lambda jit: jax.grad(jit(lambda z: jnp.sin(z) * z), holomorphic=True)(1.0 + 2.0j),
    "stop_gradient": lambda jit: jax.grad(jit(lambda x: jnp.sum(softmax(x) * jax.lax.stop_gradient(softmax(x)))))(X),
    "jvp": lambda jit: jax.jvp(jit(softmax), (X,), (V,)),
    "jvp inside": lambda jit: jit(lambda x, t: jax.jvp(softmax, (x,), (t,)))(X, V),
    "jvp with aux": lambda jit: jax.jvp(jit(with_aux), (X,), (V,), has_aux=True),
    "jvp of an integer": lambda jit: jax.jvp(jit(lambda x: (softmax(x), x > 0)), (X,), (V,))[0],
    "vjp": lambda jit: jax.vjp(jit(softmax), X)[1](V),
    "vjp pulled twice": lambda jit: [pull := jax.vjp(jit(softmax), X)[1], pull(V), pull(X)][1:],
    "vjp with aux": lambda jit: [f := jax.vjp(jit(with_aux), X, has_aux=True), f[0], f[1](1.0), f[2]][1:],
    "linearize": lambda jit: jax.linearize(jit(softmax), X)[1](V),
    "linearize, pushed in a jit": lambda jit: jit(jax.linearize(jit(softmax), X)[1])(V),
    "linear_transpose": lambda jit: jax.linear_transpose(jit(lambda x: x @ SQUARE), X)(X),
    "hessian": lambda jit: jax.hessian(jit(lambda w: jnp.sum(jnp.sin(w) ** 2)))(W),
    "jacfwd": lambda jit: jax.jacfwd(jit(jnp.sin))(W),
    "jacrev": lambda jit: jax.jacrev(jit(lambda w: jnp.cumsum(jnp.sin(w))))(W),
    "jet": lambda jit: jet(jit(lambda x: jnp.sin(x) * x), (X,), ((V, X),)),
    "jet of a constant": lambda jit: jet(jit(lambda x: (jnp.sin(x), jnp.ones(3))), (X,), ((V, X),))[0],
    "custom_jvp": lambda jit: jax.jvp(jit(own_jvp), (X,), (V,)),
    "custom_jvp reversed": lambda jit: jax.grad(jit(lambda x: own_jvp(x).sum()))(X),
    "custom_vjp": lambda jit: jax.grad(jit(lambda x: own_vjp(x, 2.0).sum()))(X),
    "custom_vjp inside": lambda jit: jit(jax.grad(lambda x: own_vjp(x, 2.0).sum()))(X),
    "custom_vjp vmapped": lambda jit: jax.vmap(jax.grad(jit(lambda x: own_vjp(x, 2.0).sum())))(MANY),
    "closure_convert": lambda jit: jit(lambda x: jax.closure_convert(lambda y: y * x, x)[0](x, x))(X),
    "gradient through a donated one": lambda jit: jax.vjp(jit(softmax, donate_argnums=0), X + 0.0)[1](V),
    "unused argument": lambda jit: jax.grad(jit(lambda x, w: loss(x)), (0, 1))(X, W),
    "unused result": lambda jit: jax.grad(lambda x: jit(lambda x: (loss(x), jnp.sort(x)))(x)[0])(X),
    "identity": lambda jit: jax.grad(lambda x: jit(lambda x: (x, softmax(x)))(x)[0].sum())(X),
    "symbolic zeros": lambda jit: jax.jvp(lambda x: jit(of_both)(x, W), (X,), (V,)),
}


@pytest.mark.parametrize("case", DERIVATIVES)
def test_derivatives(case: str) -> None:
    returns(DERIVATIVES[case])


BATCHES: dict[str, Program] = {
    "vmap": lambda jit: jax.vmap(jit(softmax))(MANY),
    "vmap inside": lambda jit: jit(jax.vmap(softmax))(MANY),
    "vmap on both sides": lambda jit: jit(jax.vmap(jit(softmax)))(MANY),
    "in_axes": lambda jit: jax.vmap(jit(of_both), in_axes=(1, None))(X, 2.0),
    "in_axes of a tree": lambda jit: jax.vmap(jit(lambda t, w: t["a"] * w + t["b"]), ({"a": 0, "b": None}, None))(
        {"a": X, "b": W}, W
    ),
    "in_axes as a prefix": lambda jit: jax.vmap(jit(lambda t: t["a"] + t["b"]), in_axes=(1,))({"a": X, "b": V}),
    "out_axes": lambda jit: jax.vmap(jit(lambda x: (softmax(x), x)), out_axes=(2, -1))(MANY),
    "out_axes None": lambda jit: jax.vmap(jit(lambda x, w: (x * w, w)), (0, None), (0, None))(X, 3.0),
    "axis_size": lambda jit: jax.vmap(jit(lambda: softmax(X)), axis_size=2)(),
    "nothing mapped inside": lambda jit: jax.vmap(lambda i: jit(softmax)(X), out_axes=None)(jnp.arange(3)),
    "by keyword": lambda jit: jax.vmap(jit(lambda x, *, w: x * w))(X, w=V),
    "nested": lambda jit: jax.vmap(jax.vmap(jit(lambda x, w: jnp.sin(x) * w), (0, None)), (None, 0))(W, W),
    "spmd_axis_name": lambda jit: jax.vmap(jit(softmax), spmd_axis_name="i")(MANY),
    "of a key": lambda jit: jax.vmap(jit(jax.random.normal))(jax.random.split(jax.random.key(0), 3)),
    "of integers": lambda jit: jax.vmap(jit(lambda n: (n // 2, n > 1)))(jnp.arange(4)),
    "of nothing": lambda jit: jax.vmap(jit(jnp.sin))(jnp.zeros((0, 3))),
    "custom_vmap": lambda jit: jax.vmap(jit(own_batching))(MANY),
    "custom_vmap alone": lambda jit: jit(own_batching)(X),
    "vectorize": lambda jit: jnp.vectorize(jit(jnp.dot), signature="(n),(n)->()")(X, W),
    "lax.map": lambda jit: jax.lax.map(jit(softmax), MANY),
    "vmap of scan": lambda jit: jax.vmap(lambda x: jax.lax.scan(lambda c, r: (jit(jnp.sin)(c), r), x, None, 2))(X),
    "per-example gradients": lambda jit: jax.vmap(jax.grad(jit(of_both), 1), (0, None))(MANY, W),
    "gradient of a batch": lambda jit: jax.grad(lambda w: jax.vmap(jit(of_both), (0, None))(MANY, w).sum())(W),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches(case: str) -> None:
    returns(BATCHES[case])


AXES: dict[str, Program] = {
    "pmean": lambda jit: jax.vmap(jit(mean_over_axis), **AXIS)(MANY),
    "psum of a constant": lambda jit: jax.vmap(jit(lambda x: x / jax.lax.psum(1, "i")), **AXIS)(MANY),
    "psum of what is not mapped": lambda jit: jax.vmap(jit(lambda x, w: jax.lax.psum(w, "i")), (0, None), None, **AXIS)(
        X, W
    ),
    "psum is not mapped": lambda jit: jax.vmap(jit(lambda x: jax.lax.psum(x, "i")), out_axes=None, **AXIS)(MANY),
    "pmax and pmin": lambda jit: jax.vmap(jit(lambda x: (jax.lax.pmax(x, "i"), jax.lax.pmin(x, "i"))), **AXIS)(X),
    "axis_index": lambda jit: jax.vmap(jit(lambda x: x * jax.lax.axis_index("i")), **AXIS)(X),
    "axis_index alone": lambda jit: jax.vmap(jit(lambda: jax.lax.axis_index("i")), axis_size=3, **AXIS)(),
    "axis_size": lambda jit: jax.vmap(jit(lambda x: x * jax.lax.axis_size("i")), **AXIS)(X),
    "all_gather": lambda jit: jax.vmap(jit(lambda x: jax.lax.all_gather(x, "i")), **AXIS)(X),
    "ppermute": lambda jit: jax.vmap(jit(lambda x: jax.lax.ppermute(x, "i", [(0, 1), (1, 0)])), **AXIS)(MANY),
    "all_to_all": lambda jit: jax.vmap(jit(lambda x: jax.lax.all_to_all(x, "i", 0, 0)), **AXIS)(SQUARE),
    "psum_scatter": lambda jit: jax.vmap(jit(lambda x: jax.lax.psum_scatter(x, "i")), **AXIS)(SQUARE),
    "two axes": lambda jit: jax.vmap(
        jax.vmap(jit(lambda x: jax.lax.psum(x, ("i", "j"))), axis_name="i"), axis_name="j"
    )(MANY),
    "one of two axes": lambda jit: jax.vmap(jax.vmap(jit(mean_over_axis), **AXIS), axis_name="j")(MANY[None]),
    "in a scan": lambda jit: jax.vmap(
        lambda x: jax.lax.scan(lambda c, _: (jit(mean_over_axis)(c), None), x, length=2)[0], **AXIS
    )(MANY),
    "grad inside the map": lambda jit: jax.vmap(jax.grad(jit(lambda x: (mean_over_axis(x) * V).sum())), **AXIS)(MANY),
    "grad outside the map": lambda jit: jax.grad(lambda x: (jax.vmap(jit(mean_over_axis), **AXIS)(x) * V).sum())(MANY),
    "jvp inside the map": lambda jit: jax.vmap(
        lambda x: jax.jvp(jit(lambda x: jnp.sin(x) - jax.lax.pmean(x, "i")), (x,), (x,)), **AXIS
    )(X),
    "jit outside": lambda jit: jit(jax.vmap(jit(mean_over_axis), **AXIS))(MANY),
}


@pytest.mark.parametrize("case", AXES)
def test_axes_of_vmap(case: str) -> None:
    returns(AXES[case])


def test_a_function_of_a_mapped_axis_is_stitched() -> None:
    """It is nothing by itself; once mapped it is a function like any other."""
    assert kernels(jax.vmap(stitch_jit(mean_over_axis), axis_name="i"), MANY) == 1


ERRORS: dict[str, Program] = {
    "grad of a vector": lambda jit: jax.grad(jit(softmax))(X),
    "grad of integers": lambda jit: jax.grad(jit(lambda n: n * 2))(3),
    "grad of complex": lambda jit: jax.grad(jit(lambda z: z * z))(1j),
    "grad of a tuple": lambda jit: jax.grad(jit(lambda x: (x.sum(), 1)))(X),
    "argnums too large": lambda jit: jax.grad(jit(loss), argnums=2)(X),
    "aux of one": lambda jit: jax.grad(jit(jnp.sum), has_aux=True)(X),
    "grad of while": lambda jit: jax.grad(jit(lambda x: jax.lax.while_loop(lambda c: c < 9, lambda c: c * 2, x)))(1.0),
    "grad of custom_vjp forwards": lambda jit: jax.jvp(jit(lambda x: own_vjp(x, 2.0)), (X,), (V,)),
    "tangent of another shape": lambda jit: jax.jvp(jit(softmax), (X,), (W,)),
    "tangent of another type": lambda jit: jax.jvp(jit(softmax), (X,), (X.astype(jnp.bfloat16),)),
    "cotangent of another shape": lambda jit: jax.vjp(jit(softmax), X)[1](W),
    "vmap of unlike sizes": lambda jit: jax.vmap(jit(jnp.add))(X, W),
    "vmap of a scalar": lambda jit: jax.vmap(jit(jnp.sin))(1.0),
    "vmap in_axes of another structure": lambda jit: jax.vmap(jit(softmax), in_axes=(0, 0))(X),
    "vmap out_axes None of a mapped": lambda jit: jax.vmap(jit(softmax), out_axes=None)(MANY),
    "vmap out_axes None of an axis index": lambda jit: jax.vmap(
        jit(lambda: jax.lax.axis_index("i")), out_axes=None, axis_size=2, axis_name="i"
    )(),
    "vmap out_axes out of range": lambda jit: jax.vmap(jit(jnp.sin), out_axes=4)(X),
    "transpose of what is not linear": lambda jit: jax.linear_transpose(jit(jnp.sin), X)(X),
    "axis of another name": lambda jit: jax.vmap(jit(mean_over_axis), axis_name="j")(MANY),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    raises(ERRORS[case])


@pytest.mark.usefixtures("only_new_objects")
def test_a_leak_is_found() -> None:
    """By JAX's own check. The message lists whatever else holds the tracer, so only its beginning is compared."""
    kept: list[Any] = []
    messages = []
    for jit in (jax.jit, stitch_jit):
        with jax.checking_leaks(), pytest.raises(Exception, match="Leaked") as caught:
            jit(lambda x: kept.append(x))(X)
        kept.clear()
        messages.append(str(caught.value).partition("This concrete value")[0])
    assert messages[0] == messages[1] and "JitTracer(float32[3,4])" in messages[0]
