"""Programs are written alike only where JAX lowers them alike."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

from bench.workloads import ALL
from jax_stitch.jit.tiers import written_program
from jax_stitch.jit.tiers.written_program import written
from tests.drawn import program

X = jnp.arange(12.0).reshape(3, 4)
KEPT = jnp.arange(4.0)


def writing(fun: Callable[..., Any], *args: Any, **options: Any) -> bytes | None:
    return written(jax.jit(fun, **options).trace(*args), jax.tree.leaves(args), options)


def named(fun: Callable[..., Any], name: str = "f") -> Callable[..., Any]:
    fun.__name__ = fun.__qualname__ = name
    return fun


def in_turn(last: int) -> Callable[..., Any]:
    """Three programs that are called once, and one of them a second time."""
    inner = [jax.jit(named(lambda x, f=f: f(x))) for f in (jnp.sin, jnp.cos, jnp.tan)]

    def run(x: Any) -> Any:
        for k in (0, 1, 2, last):
            x = inner[k](x)
        return x

    return named(run)


def a_half(x: Any) -> Any:
    return x * 0.5


PAIRS: dict[str, tuple[Callable[[], bytes | None], Callable[[], bytes | None]]] = {
    "a constant": (lambda: writing(named(lambda x: x * 2), X), lambda: writing(named(lambda x: x * 3), X)),
    "the sign of zero": (lambda: writing(named(lambda x: x + 0.0), X), lambda: writing(named(lambda x: x + -0.0), X)),
    "a captured array": (
        lambda: writing(named(lambda x: x + KEPT), X),
        lambda: writing(named(lambda x: x + (KEPT + 1)), X),
    ),
    "which argument": (lambda: writing(named(lambda x, y: x), X, X), lambda: writing(named(lambda x, y: y), X, X)),
    "the order of operands": (
        lambda: writing(named(lambda x, y: x - y), X, X),
        lambda: writing(named(lambda x, y: y - x), X, X),
    ),
    "an operation": (lambda: writing(named(jnp.sin), X), lambda: writing(named(jnp.cos), X)),
    "an axis": (lambda: writing(named(lambda x: x.sum(0)), X), lambda: writing(named(lambda x: x.sum(1)), X)),
    "a shape": (lambda: writing(a_half, X), lambda: writing(a_half, X[:2])),
    "a type": (lambda: writing(a_half, X), lambda: writing(a_half, X.astype(jnp.bfloat16))),
    "a weak type": (lambda: writing(a_half, 1.0), lambda: writing(a_half, jnp.float32(1.0))),
    "how results are ordered": (
        lambda: writing(named(lambda x: (x + 1, x + 2)), X),
        lambda: writing(named(lambda x: (x + 2, x + 1)), X),
    ),
    "a precision": (
        lambda: writing(named(lambda x: jnp.dot(x, x.T, precision="highest")), X),
        lambda: writing(named(lambda x: jnp.dot(x, x.T)), X),
    ),
    "the body of a loop": (
        lambda: writing(named(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x)), X),
        lambda: writing(named(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 3, x)), X),
    ),
    "which inner program": (lambda: writing(in_turn(1), X), lambda: writing(in_turn(2), X)),
    "a branch": (
        lambda: writing(named(lambda x: lax.cond(x[0, 0] > 1, jnp.sin, jnp.cos, x)), X),
        lambda: writing(named(lambda x: lax.cond(x[0, 0] > 1, jnp.sin, jnp.tan, x)), X),
    ),
    "a gather's mode": (
        lambda: writing(named(lambda x: x.at[7].get(mode="clip")), X),
        lambda: writing(named(lambda x: x.at[7].get(mode="fill")), X),
    ),
    "a name": (lambda: writing(named(lambda x: x * 2, "f"), X), lambda: writing(named(lambda x: x * 2, "g"), X)),
    "donated memory": (lambda: writing(a_half, X), lambda: writing(a_half, X, donate_argnums=0)),
    "kept arguments": (lambda: writing(a_half, X), lambda: writing(a_half, X, keep_unused=True)),
    "the shape of random bits": (
        lambda: writing(named(lambda k: jax.random.bits(k, (4,))), jax.random.key(0)),
        lambda: writing(named(lambda k: jax.random.bits(k, (5,))), jax.random.key(0)),
    ),
    "a generator": (
        lambda: writing(named(lambda k: jax.random.bits(k)), jax.random.key(0)),
        lambda: writing(named(lambda k: jax.random.bits(k)), jax.random.key(0, impl="rbg")),
    ),
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_is_lowered_otherwise_is_written_otherwise(what: str) -> None:
    one, other = PAIRS[what]
    assert one() is not None and other() is not None and one() != other()
    assert one() == one()


def test_threefry_is_written_as_it_is_split() -> None:
    """Of one jaxpr, JAX's option decides when it is lowered, too."""

    def split() -> bytes | None:
        return writing(named(lambda k: jax.random.bits(k, (64,))), jax.random.key(0))

    ours = split()
    with jax.threefry_partitionable(False):
        assert split() != ours


def test_where_a_function_comes_from_is_not_written() -> None:
    text = "def f(x):\n    return (x * 2).sum()"
    functions = []
    for before in ("", "\n\n\n"):
        names: dict[str, Any] = {}
        exec(before + text, names)
        functions.append(names["f"])
    assert writing(functions[0], X) == writing(functions[1], X) is not None


def test_random_programs_are_written_alike_where_they_are_lowered_alike() -> None:
    """Catches a parameter, a type or a constant that is left out."""
    with jax.enable_x64(True):
        texts, writings = [], []
        for seed in range(60):
            made = program(Random(seed // 2), steps=6, loops=True)  # Each twice: traced again it is the same.
            traced = jax.jit(named(lambda *a, run=made.fun: run(*a))).trace(*made.args)
            texts.append(traced.lower().as_text())
            writings.append(written(traced, made.args, {}))
    assert None not in writings
    assert len(set(writings)) == len(set(texts)) == len(set(zip(texts, writings, strict=True))) == 30


@pytest.mark.parametrize("name", list(ALL))
def test_every_workload_is_written(name: str) -> None:
    """Catches a primitive or parameter of a public library's programs that is lowered only to be named."""
    fun, args = ALL[name].abstract(ALL[name].test_sizes[0], jnp.dtype("float32"))
    first, second = writing(fun, *args), writing(fun, *args)
    assert first == second is not None


def _another_sin() -> Callable[[Any], Any]:
    impostor = Primitive("sin")
    impostor.def_abstract_eval(lambda aval: aval)
    return lambda x: impostor.bind(x)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "a call of Python": lambda x: jax.pure_callback(lambda v: v, x, x),
    "a print": lambda x: (jax.debug.print("{}", x[0]), x)[1],
    "another's operation of a known name": _another_sin(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_differ_in_secret_is_not_written(what: str) -> None:
    assert writing(named(REFUSED[what]), X) is None


def test_programs_over_several_devices_are_not_written() -> None:
    assert writing(a_half, X, out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0])) is None
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("i",))
    with jax.sharding.use_mesh(mesh) if hasattr(jax.sharding, "use_mesh") else jax.set_mesh(mesh):
        assert writing(a_half, X) is None


def test_constants_over_several_devices_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_program, "_is_on_one_device", lambda array: array is not KEPT)
    assert writing(named(lambda x: x + KEPT), X) is None and writing(named(lambda x: x + 1), X) is not None


def test_derivative_rules_say_nothing() -> None:
    """They are other functions in every process."""

    def softplus() -> Callable[[Any], Any]:
        @jax.custom_jvp
        def inner(x: Any) -> Any:
            return jnp.log1p(jnp.exp(x))

        inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))
        return named(lambda x: inner(x))

    assert writing(softplus(), X) == writing(softplus(), X) is not None
    relu, silu = (writing(named(lambda x, f=f: f(x)), X) for f in (jax.nn.relu, jax.nn.silu))
    assert relu != silu
