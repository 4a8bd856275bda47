"""Each operator of JAX, stitched, against plain ``jax.jit``: alone, and between a producer and a reduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import host
from tests.fusion.forced import LIGHT_FLAGS, everything_pays
from tests.operators.table import COLUMNS, DTYPES, OPERATORS, ROWS, Operator
from tests.side_by_side import same

A_DOZEN = 12
"""Operators of a program in the fast tests."""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(host, "FLAGS", LIGHT_FLAGS)
    with jax.enable_x64(True):
        yield


def values(operator: Operator, dtype: str, name: str) -> list[jax.Array]:
    """Floats between the bounds of the operator, small integers, none of them zero: it may be a divisor."""
    rng = np.random.default_rng(crc32(f"{name}{dtype}".encode()))
    found = []
    for _ in range(2):
        if dtype == "bool":
            value = rng.random((ROWS, COLUMNS)) < 0.5
        elif jnp.issubdtype(dtype, jnp.integer):
            value = rng.integers(1, 6, (ROWS, COLUMNS)) * (
                rng.choice([-1, 1], (ROWS, COLUMNS)) if dtype[0] == "i" else 1
            )
        else:
            value = rng.uniform(*operator.domain, (ROWS, COLUMNS))
        found.append(jnp.asarray(value, dtype))
    return found


def between(operator: Operator) -> Callable[..., Any]:
    """The operator on what is computed, and sums of what it returns beside that itself."""

    def run(x: Any, y: Any) -> Any:
        results = operator.function(_produced(x), _produced(y))
        return results, jax.tree.map(_reduced, results)

    return run


def _produced(x: Any) -> Any:
    """Another value in the same domain."""
    if x.dtype == bool:
        return jnp.logical_xor(x, x[:1])
    return jnp.where(x == x[:1, :1], x[:, ::-1], x)


def _reduced(x: Any) -> Any:
    if x.ndim == 0:
        return x
    if x.dtype == bool:
        return x.any(-1)
    return x.max(-1) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.where(jnp.isfinite(x), x, 1).mean(-1)


def check(fun: Callable[..., Any], arguments: Any, forced: bool) -> None:
    want = jax.jit(lambda *a: fun(*a))(*arguments)
    with everything_pays() if forced else nullcontext():
        found = stitch_jit(lambda *a: fun(*a), strict=True)(*arguments)
    same(found, want)


CASES = [(name, dtype) for name, operator in OPERATORS.items() for kind in operator.kinds for dtype in DTYPES[kind]]


@pytest.mark.slow
@pytest.mark.parametrize("forced", [False, True], ids=["as planned", "everything"])
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{name}-{dtype}" for name, dtype in CASES])
def test_operator(name: str, dtype: str, forced: bool) -> None:
    operator = OPERATORS[name]
    arguments = values(operator, dtype, name)
    for fun in (operator.function, between(operator)):
        check(fun, arguments, forced)


def together(dtype: str) -> list[list[str]]:
    """The operators that take a type, so many at a time."""
    names = [name for name, kind in CASES if kind == dtype]
    return [names[n : n + A_DOZEN] for n in range(0, len(names), A_DOZEN)]


PROGRAMS = [(dtype, n) for kind in ("f", "i", "b") for dtype in DTYPES[kind][:1] for n in range(len(together(dtype)))]


def program(n: int, case: tuple[str, int]) -> Any:
    """Every fourth is fast."""
    return pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=[pytest.mark.slow] if n % 4 else [])


@pytest.mark.parametrize(("dtype", "n"), [program(n, case) for n, case in enumerate(PROGRAMS)])
def test_operators_together(dtype: str, n: int) -> None:
    """A dozen in a program, each between a producer and a reduction."""
    names = together(dtype)[n]
    arguments = {name: values(OPERATORS[name], dtype, name) for name in names}

    def run(given: Any) -> Any:
        return {name: between(OPERATORS[name])(*given[name]) for name in names}

    check(run, [arguments], forced=True)
