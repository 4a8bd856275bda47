"""A kernel that keeps the compiler busy for too long is left to XLA, and the others are kernels all the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import CompilerTimeout, parallel
from jax_stitch.jit.tune import in_time

X = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
W = np.full((512, 512), 0.5, np.float32)


def two_kernels(x: Any, w: Any) -> Any:
    """With a product between, by a named algorithm, which no kernel takes. Of an operand: XLA's CPU compiler gives NaNs
    in about every second process for a product with a constant that is the same everywhere.
    """
    first = x - x.mean(-1, keepdims=True)
    return jax.nn.softmax(jax.lax.dot(first, w, precision=jax.lax.DotAlgorithmPreset.F32_F32_F32), -1)


def slow(monkeypatch: pytest.MonkeyPatch, which: str) -> list[str]:
    """A compiler that is never done with kernels of such a name; the names of those that it was given."""
    given: list[str] = []
    usual = parallel.compile_host

    def compile_host(source: Any) -> Any:
        given.append(source.name)
        if which in source.name:
            raise CompilerTimeout("The compiler was stopped after 20 s.")
        return usual(source)

    together = parallel.compile_batch

    def compile_batch(sources: Any) -> Any:
        if any(which in s.name for s in sources):
            raise CompilerTimeout("The compiler was stopped after 20 s.")
        return together(sources)

    monkeypatch.setattr(parallel, "compile_host", compile_host)
    monkeypatch.setattr(parallel, "compile_batch", compile_batch)
    return given


def notes_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    usual = in_time.compiled_in_time

    def compiled_in_time(stitched: Any, target: str) -> Any:
        result = usual(stitched, target)
        found.extend(result[0].plan.notes)
        return result

    monkeypatch.setattr(in_time, "compiled_in_time", compiled_in_time)
    return found


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.filterwarnings("error::jax_stitch.StitchWarning")
def test_it_alone_is_left_to_xla(monkeypatch: pytest.MonkeyPatch, verify: bool) -> None:
    """Also with a second opinion, which compiles kernels first: the whole function was left to XLA there."""
    names = [k.name for k in stitch_jit(two_kernels).plan(X, W).kernels]
    assert len(names) == 2
    slow(monkeypatch, names[0])
    notes = notes_of(monkeypatch)
    stitched = stitch_jit(two_kernels, verify=verify)
    np.testing.assert_allclose(stitched(X, W), np.full(X.shape, 1 / 512), rtol=1e-3)
    assert any(names[0] in note and "left to XLA" in note for note in notes)
    assert "stitch" in stitched.lower(X, W).as_text()


@pytest.mark.parametrize("verify", [False, True])
def test_a_compiler_that_always_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, verify: bool) -> None:
    def fun(x: Any) -> Any:
        for _ in range(4):
            x = jax.nn.softmax(x @ jnp.ones((512, 512), x.dtype), -1) - x.max(0)
        return x

    given = slow(monkeypatch, "")
    with pytest.warns(UserWarning, match="stopped after 20 s"):
        found = stitch_jit(fun, strict=False, verify=verify)(X)
    assert found.shape == X.shape
    assert len(given) < 12
