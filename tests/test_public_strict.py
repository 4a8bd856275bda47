"""``strict=True``: what would fall back is raised."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

from jax_stitch import UnstitchableError, __main__, compare, pipeline, stitch, stitch_jit
from jax_stitch.backend.compile import CompilerMissing
from jax_stitch.frontend.replay.rules import RULES
from jax_stitch.jit import lowering
from tests import public_faults
from tests.light import light
from tests.public_faults import X, broken, fresh, mutating, softmax
from tests.side_by_side import fallbacks, same

__all__ = ["light"]


def test_what_is_unsupported_is_raised_with_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what a function does, and for what its HLO has: the second only shows when it is lowered."""
    for use in (lambda f: stitch_jit(f, strict=True)(X), lambda f: jax.jit(stitch(f, strict=True))(X)):
        with pytest.raises(UnstitchableError, match=r"mutating cannot be stitched: .*new_ref at ") as caught:
            use(mutating)
        assert caught.value.function == "mutating" and "new_ref" in caught.value.reason
    monkeypatch.delitem(RULES, "sort")

    def long_sort(x: Any) -> Any:
        return softmax(jnp.sort(jnp.arange(1 << 16) * x[0, 0]))

    with pytest.raises(UnstitchableError, match=r"long_sort cannot be stitched: .*sort \(sort"):
        stitch_jit(long_sort, strict=True)(X)
    with fallbacks() as messages:
        stitch_jit(long_sort, strict=False)(X)
    assert len(messages) == 1 and "report" not in messages[0] and "internal" not in messages[0]


def test_what_the_machine_lacks_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerMissing, match="no-such-compiler") as caught:
        stitch_jit(fresh(5.0), strict=True)(X)
    assert caught.value.__notes__[0].startswith(f"JAX Stitch cannot stitch fun ({public_faults.__file__}:")


def test_strictness_comes_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_STRICT", "1")
    strict, lax = stitch_jit(mutating), stitch_jit(mutating, strict=False)
    monkeypatch.delenv("JAX_STITCH_STRICT")  # It counts when a function is decorated.
    with pytest.raises(UnstitchableError):
        strict(X)
    with fallbacks() as messages:
        lax(X)
    assert len(messages) == 1
    for value, asked in (("yes", None), ("0", "yes")):
        monkeypatch.setenv("JAX_STITCH_STRICT", value)
        with pytest.raises(ValueError, match="'yes', which is none of"):
            stitch_jit(softmax, strict=asked)


TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: jax.grad(lambda x: f(x).max()),
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None]),
    "jit": jax.jit,
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0],
    "checkify": lambda f: checkify.checkify(f, errors=checkify.float_checks),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_strictness_holds_under_transformations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A derivative or a batched form is as strict as the function. Checkify takes any function apart."""
    if name != "checkify":
        monkeypatch.setattr(pipeline, "explore", broken)
    with pytest.raises(UnstitchableError if name == "checkify" else KeyError):
        TRANSFORMED[name](stitch_jit(fresh(6.0), strict=True))(X)


def test_a_strict_function_inside_another() -> None:
    """The inner one is part of the outer one, which warns; left alone, the inner one is on its own again."""
    inner = stitch_jit(softmax, strict=True)
    with fallbacks() as messages:
        same(stitch_jit(lambda x: (mutating(x), inner(x))[1])(X), jax.jit(softmax)(X))
    assert len(messages) == 1
    with pytest.raises(UnstitchableError, match="mutating"):
        stitch_jit(lambda x: stitch_jit(mutating, strict=True)(x))(X)


def test_strict_plans_and_comparisons(capsys: pytest.CaptureFixture[str]) -> None:
    strict = stitch_jit(mutating, strict=True)
    for use in (lambda: strict.plan(X), lambda: stitch_jit(mutating).plan(X, strict=True), lambda: compare(strict, X)):
        with pytest.raises(UnstitchableError, match="new_ref"):
            use()
    assert strict.plan(X, strict=False).unstitched is not None
    for command in ("plan", "compare"):
        name = f"{__name__}:mutating"
        assert __main__.main([command, name, "--args", "f32[3,4]", "--strict"]) == 1
        shown = capsys.readouterr()
        assert "error: mutating cannot be stitched" in shown.err and "Traceback" not in shown.err


def test_a_strict_function_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnstitchableError, match="new_ref"):
        stitch_jit(mutating, mode="async", strict=True)(X)
    monkeypatch.setattr(lowering, "rebuild", broken)
    function = stitch_jit(fresh(7.0), mode="async", strict=True)
    same(function(X), jax.jit(fresh(7.0))(X))
    for use in (function.wait, functools.partial(function, X)):
        with pytest.raises(KeyError, match="a defect"):
            use()
    same(stitch_jit(mutating, mode="off", strict=True)(X), jax.jit(mutating)(X))
