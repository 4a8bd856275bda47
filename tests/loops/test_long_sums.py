"""Sums of many numbers in loops in teams: as exact as XLA's, which sums up runs of them first.

Numbers that are all alike are the worst: each addition rounds the same way (an error of 5e-4 of a sum of a million).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch, stitch_jit
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture
from jax_stitch.loops.teams import team_choice
from jax_stitch.pipeline import stitch_capture


def scanned(step: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """What ``step`` makes of a state and each of ``xs``, stacked."""

    def run(xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h * 0.3 + x), step(h, x)), xs[0], xs)[1]

    return run


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "of all": (scanned(lambda h, x: (h * 1.1).sum()), (3, 64, 1024)),
    "of all, not in runs alone": (scanned(lambda h, x: (h * 1.1).sum()), (3, 61, 1019)),
    "along rows": (scanned(lambda h, x: (h * 1.1).sum(-1)), (3, 8, 8192)),
    "along columns": (scanned(lambda h, x: (h * 1.1).sum(0)), (3, 8192, 8)),
    "of two": (scanned(lambda h, x: (h * 1.1).sum(0) * (h - x).sum(0)), (3, 2048, 8)),
    "products": (scanned(lambda h, x: h @ x.T), (3, 8, 4096)),
    "products along columns": (scanned(lambda h, x: h.T @ x), (3, 4099, 8)),
}

LARGEST = 6e-6
"""Relative error: of a product, runs of 256 steps are summed up in turn."""


def exact(function: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(function(jnp.asarray(x, jnp.float64)))


def assert_close(name: str, got: Any) -> None:
    function, shape = PROGRAMS[name]
    want = exact(function, np.full(shape, 0.7, np.float32))
    assert np.abs(np.asarray(got, np.float64) - want).max() <= LARGEST * np.abs(want).max()


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_numbers(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)
    function, shape = PROGRAMS[name]
    x = np.full(shape, 0.7, np.float32)
    assert stitch_jit(function).plan(x, device="cpu" if device == "cpu" else None).kernels
    assert_close(name, jax.jit(stitch(function, schedule_device=device))(x))


@pytest.mark.parametrize("name", ["of all, not in runs alone", "along columns", "along rows"])
def test_as_cuda_runs_them(name: str) -> None:
    """A run's sum that is joined by another thread, or not at all at the end."""
    function, shape = PROGRAMS[name]
    x = np.full((2, *(max(1, d // 4) for d in shape[1:])), 0.7, np.float32)
    made = stitch_capture(capture(function, (x,), devices.get("cpu")), devices.get("h200"))
    checked = check_function(made, [x])
    assert not checked.errors, str(checked)
    want = exact(function, x)
    (got,) = checked.results
    assert np.abs(np.asarray(got, np.float64) - want).max() <= LARGEST * np.abs(want).max()


def test_compiles_for_gpus() -> None:
    function, shape = PROGRAMS["along columns"]
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    made = stitch_capture(capture(function, (x,), devices.get("cpu")), devices.get("h200"))
    assert any("ST_SPLIT_RUNS" in k.source.text for k in made.kernels), "nothing of runs to compile"
    for kernel in made.kernels:
        compile_ptx(kernel.source)
