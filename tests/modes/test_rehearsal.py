"""Running a program once before the user does: only where that is safe, and exactly on the user's way through JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.jit.rehearsal import LARGEST, rehearsal

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


def rehearsed(fun: Any, *args: Any, options: Any = None, **kwargs: Any) -> Any:
    jitted = jax.jit(fun, **options or {})
    return jitted, rehearsal(jitted.trace(*args, **kwargs).jaxpr, fun, args, kwargs, options or {})


def fresh() -> Any:
    """A function that JAX has not seen."""

    def scale(x: Any, factor: Any = 2, *, shift: Any = 0) -> Any:
        return jax.tree.map(lambda leaf: leaf * factor + shift, x)

    return scale


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "array": ((X,), {}, {}),
    "committed": ((jax.device_put(X, jax.devices()[0]),), {}, {}),
    "numpy": ((np.asarray(X),), {}, {}),
    "numpy scalar": ((X, np.float32(3)), {}, {}),
    "Python scalars": ((X, 3.5), {"shift": True}, {}),
    "pytree": (({"a": X, "b": [X[0], None]},), {}, {}),
    "static by number": ((X, 3), {}, {"static_argnums": 1}),
    "static counted from the end": ((X, 3), {}, {"static_argnums": (-1,)}),
    "static by name": ((X, 3), {"shift": 1}, {"static_argnames": ("factor", "shift")}),
    "static by number, given by name": ((X,), {"factor": 3}, {"static_argnums": (1,)}),
    "donated": ((X + 1,), {}, {"donate_argnums": 0}),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_users_call_finds_the_fast_path(call: str) -> None:
    """One entry in JAX's cache of calls, from the rehearsal: another one would be another way, and slow once more."""
    args, kwargs, options = CALLS[call]
    jitted, found = rehearsed(fresh(), *args, options=options, **kwargs)
    zeros, named = found.arguments()
    jitted(*zeros, **named)
    assert jitted._cache_size() == 1
    jitted(*args, **kwargs)
    assert jitted._cache_size() == 1


def test_random_keys() -> None:
    jitted, found = rehearsed(lambda key: jax.random.normal(key, (3,)), jax.random.key(3))
    jitted(*found.arguments()[0])
    jitted(jax.random.key(3))
    assert jitted._cache_size() == 1


def test_no_array_is_kept() -> None:
    _, found = rehearsed(fresh(), X)
    assert not np.any(found.arguments()[0][0])


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (lambda x: jax.lax.while_loop(lambda v: v.sum() < 1, lambda v: v + x, x), (X,)),  # never ends on zeros
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, v: v + x, x), (X,)),
        (
            lambda x: jax.lax.cond(x.sum() > 0, lambda v: jax.lax.fori_loop(0, 3, lambda i, w: w + v, v), jnp.sin, x),
            (X,),
        ),
        (jax.jit(lambda x: jax.lax.map(jnp.sin, x)), (X,)),
        (jnp.sin, (jnp.zeros(LARGEST // 4),)),
        (lambda x: jnp.zeros((LARGEST // 4,)) + x, (1.0,)),
        (jnp.sin, (jnp.asarray(2.0),)),  # weakly typed
    ],
    ids=["while", "fori", "inside a branch", "inside a jit", "large argument", "large result", "weak"],
)
def test_what_is_better_left(fun: Any, args: Any) -> None:
    assert rehearsed(fun, *args)[1] is None
