"""A program that is loaded before its call is lowered is taken for that call alone, and only where it is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.physical import abstract
from jax_stitch.jit.programs.at_hand import at_hand, taken
from jax_stitch.jit.programs.program import RebuiltProgram, types_of


def program_of(fun: Callable[..., Any], *args: Any) -> RebuiltProgram:
    """A program without kernels, as it comes from disk."""
    captured = capture(fun, args, devices.get("cpu"))
    types = types_of(captured.parameters, captured.results)
    callbacks = tuple(range(len(captured.callbacks)))
    made = RebuiltProgram(captured.name, captured.bytecode(), (), callbacks=callbacks, types=types)
    return RebuiltProgram.from_bytes(made.to_bytes())


Asked = tuple[str, str, list[jax.ShapeDtypeStruct], list[jax.ShapeDtypeStruct]]


def asked(fun: Callable[..., Any], *args: Any) -> Asked:
    """Return what an operation asks by."""
    results = jax.make_jaxpr(fun)(*args).out_avals
    return (
        fun.__name__,
        "here.py:1",
        list(map(abstract, args)),
        [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in results],
    )


def scaled(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x * 2, jnp.sum(x, axis=0)


def drawn(key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.random.split(key)[0], x + jax.random.uniform(key, x.shape)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "floats": (scaled, (np.arange(6.0, dtype=np.float32).reshape(2, 3),)),
    "a weak scalar": (lambda x: x + 1, (2.0,)),
    "bfloat16": (scaled, (jnp.ones((2, 3), jnp.bfloat16),)),
    "nothing in it": (scaled, (jnp.ones((0, 3)),)),
    "a typed key": (drawn, (jax.random.key(3), jnp.ones(4))),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_function(name: str) -> None:
    """Values and types, weak ones and keys too: a type that is lost would have callers traced once more."""
    fun, args = CASES[name]
    with at_hand([program_of(fun, *args)]):
        run = taken(*asked(fun, *args))
    assert run is not None
    made, wanted = jax.make_jaxpr(run)(*args), jax.make_jaxpr(fun)(*args)
    assert made.out_avals == wanted.out_avals
    for ours, plain in zip(jax.jit(run)(*args), jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
        assert ours.dtype == plain.dtype
        if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(plain, np.float32))
        else:
            np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(plain))


def test_one_operation_takes_it() -> None:
    """A second operation in the same call is another one, though its types may be the same."""
    x = jnp.ones((2, 3))
    with at_hand([program_of(scaled, x)]):
        assert taken(*asked(scaled, x)) is not None
        assert taken(*asked(scaled, x)) is None
    assert taken(*asked(scaled, x)) is None


@pytest.mark.parametrize("other", [jnp.ones((3, 2)), jnp.ones((2, 3), jnp.int32), jnp.ones((2, 3), jnp.bfloat16)])
def test_of_other_types_it_is_another_program(other: jax.Array) -> None:
    with at_hand([program_of(scaled, jnp.ones((2, 3)))]):
        assert taken(*asked(scaled, other)) is None


def test_of_other_results_it_is_another_program() -> None:
    x = jnp.ones((2, 3))
    with at_hand([program_of(scaled, x)]):
        name, place, arguments, results = asked(scaled, x)
        assert taken(name, place, arguments, results[::-1]) is None


def test_a_function_of_another_name_is_another() -> None:
    x = jnp.ones((2, 3))

    def other(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x * 3, jnp.sum(x, axis=0)

    with at_hand([program_of(scaled, x)]):
        assert taken(*asked(other, x)) is None


def test_of_several_nobody_knows_which() -> None:
    x = jnp.ones((2, 3))
    with at_hand([program_of(scaled, x)] * 2):
        assert taken(*asked(scaled, x)) is None


def test_what_calls_python_is_captured() -> None:
    """The functions that it calls are found by that."""

    def calling(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((2,), jnp.float32), x)

    x = jnp.ones(2)
    program = program_of(calling, x)
    assert program.callbacks
    for one in (program, replace(program, callbacks=(), types=None)):
        with at_hand([one]):
            assert taken(*asked(calling, x)) is None
