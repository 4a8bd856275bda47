"""A function under ``jax.jit`` and under ``stitch_jit``: results, errors and the number of traces must be the same."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from jax_stitch import stitch_jit
from jax_stitch.jit.programs.fallback import StitchWarning

Transform = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From a function under a jit to what is called."""

KERNEL = "jax_stitch_host_kernel"
"""The target of a stitched kernel's call in lowered text."""


class Counted:
    """A function that counts how often its Python code runs."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self.fun, self.runs = fun, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        return self.fun(*args, **kwargs)


def counted(fun: Callable[..., Any]) -> tuple[Callable[..., Any], Counted]:
    """``fun`` as a plain function, which ``jax.jit`` treats like the original, and its counter."""
    counter = Counted(fun)

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        return counter(*args, **kwargs)

    return run, counter


def same(found: Any, expected: Any) -> None:
    """Equal structures, types (weak or not) and values but for rounding."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        if not isinstance(a, (jax.Array, np.ndarray)):
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert getattr(a, "weak_type", None) == getattr(b, "weak_type", None)
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if a.dtype == jax.dtypes.float0:
            continue
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "fcV" and a.size:
            precision = 1e-2 if a.dtype.itemsize < 4 else 2e-5
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            scale = max(1.0, float(np.max(np.abs(b.astype(wide)), initial=0.0, where=np.isfinite(b.astype(wide)))))
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=precision, atol=precision * scale)
        else:
            np.testing.assert_array_equal(a, b)


def both(
    fun: Callable[..., Any], *args: Any, transform: Transform | None = None, calls: int = 2, **jit_options: Any
) -> Any:
    """Calls ``fun`` under both jits, transformed, and compares; returns the stitched result.

    Called several times, so that what is cached after the first call is compared as well.
    """
    applied = transform or (lambda jitted: jitted)
    outcomes = []
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(fun)
        called = applied(jit(run, **jit_options))
        results = [called(*jax.tree.map(_copy, args)) for _ in range(calls)]
        outcomes.append((results, counter.runs))
    (expected, expected_runs), (found, runs) = outcomes
    for a, b in zip(found, expected, strict=True):
        same(a, b)
    assert runs == expected_runs, "the function's own code must run as often as under jax.jit"
    return found[-1]


def both_raise(call: Callable[[Callable[..., Any]], Any]) -> BaseException:
    """``call(jit)`` must raise the same error under both jits; returns the stitched one."""
    errors: list[BaseException] = []
    for jit in (jax.jit, stitch_jit):
        try:
            call(jit)
        except Exception as error:
            errors.append(error)
        else:
            raise AssertionError(f"no error under {jit.__name__}")
    expected, found = errors
    assert type(found) is type(expected)
    assert without_addresses(str(found)) == without_addresses(str(expected))
    return found


def without_addresses(text: str) -> str:
    """Return a message without the addresses of objects, the line at which jax 0.11 was tracing, and what functions are
    local to: jax 0.10 names that where a function is called again, and not where it is first called.
    """
    text = re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"(This error occurs at source: ).*", r"\1", text))
    return re.sub(r"(?:[\w.]|<lambda>)+\.<locals>\.", "", text)


def kernels(fun: Callable[..., Any], *args: Any) -> int:
    """How many stitched kernels the program of a call has."""
    return int(jax.jit(fun).lower(*args).as_text().count(KERNEL))


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """The messages of the functions that fell back to plain ``jax.jit`` meanwhile."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += [str(w.message) for w in caught if issubclass(w.category, StitchWarning)]


def _copy(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf
