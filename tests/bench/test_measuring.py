"""What the benchmark says of kernels that are slow, wrong, noisy or not there (issue 7, point 4)."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench import measure
from bench.measure import Request
from bench.rows import Row
from bench.tables import line
from jax_stitch.api import stitch_jit
from jax_stitch.frontend.capture.traffic import traffic
from jax_stitch.jit.programs.fallback import StitchWarning
from jax_stitch.util import timing
from jax_stitch.util.timing import SHORT, Timing, repeated, time_in_turn, time_programs

WORKLOAD, SIZE = "softmax_middle", (8, 64, 128)


def row(what: str = "all", workload: str = WORKLOAD, size: tuple[int, ...] = SIZE, **others: Any) -> Row:
    request = {"checked": size, "dtype": "float32", "device": "cpu", "what": what, "seconds": 0.3, **others}
    return measure.measure(Request(workload, size, **request), lambda stage: None)


def in_place_of_stitching(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Lets the benchmark take ``jax.jit`` of a changed function for the stitched one."""
    monkeypatch.setattr(measure, "stitch_jit", lambda function: jax.jit(change(function)))


def test_a_stitched_workload_is_timed_counted_and_right() -> None:
    found = row()
    assert found.status == "ok" and found.speedup is not None and found.speedup > 0
    assert found.jit.launches is not None and found.stitched.launches == 1 < found.jit.launches
    assert found.bound_bytes == 2 * 4 * np.prod(SIZE) == found.stitched.bytes
    assert found.stitched.peak_bytes == found.bound_bytes
    for side in (found.jit, found.stitched):
        assert side.time is not None and len(side.time.samples) >= 3
        assert side.warm is not None and side.warm > 0
        assert side.error is not None and 0 < side.error < 1e-5


def test_a_slowed_kernel_shows_as_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark that times something else than what it was given: the same result after 50 times the work."""

    def slowed(function: Any) -> Any:
        def slow(x: jax.Array) -> jax.Array:
            waste = jax.lax.fori_loop(0, 50, lambda _, y: jnp.sin(jnp.cos(y)), x)
            return function(x + 0 * waste)

        return slow

    in_place_of_stitching(monkeypatch, slowed)
    found = row()
    assert found.status == "ok"
    assert found.speedup is not None and found.speedup < 0.5


def test_a_wrong_kernel_shows_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element of thousands, off by a thousandth."""

    def wrong(function: Any) -> Any:
        return lambda x: function(x).ravel().at[77].mul(1.001).reshape(x.shape)

    in_place_of_stitching(monkeypatch, wrong)
    found = row()
    assert found.status == "wrong"
    assert "DISAGREES" in found.reason and "WRONG" in line(found)


def test_an_unstitched_workload_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fall-back to plain ``jax.jit`` agrees perfectly and is as fast: it has to be told apart."""

    def falls_back(function: Any) -> Any:
        def plain(x: jax.Array) -> jax.Array:
            warnings.warn(StitchWarning("softmax runs as plain jax.jit: for a test"), stacklevel=1)
            return function(x)

        return plain

    in_place_of_stitching(monkeypatch, falls_back)
    request = {"workload": WORKLOAD, "size": list(SIZE), "checked": list(SIZE), "dtype": "float32", "device": "cpu"}
    values = measure.answer({**request, "what": "compile", "seconds": 0.1}, lambda stage: None)
    assert values["status"] == "plain" and "for a test" in values["notes"][0]


def test_noise_is_reported_as_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that alternate between one and five milliseconds, beside calls that do not: by a clock of our own, as on a
    busy machine no call is steady.
    """
    value, pauses, now = jnp.zeros(()), itertools.cycle((0.001, 0.005)), [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def noisy() -> jax.Array:
        now[0] += next(pauses)
        return value

    def steady() -> jax.Array:
        now[0] += 0.003
        return value

    found = time_in_turn({"noisy": noisy, "steady": steady}, rounds=12, sample_seconds=0.0)
    assert found["noisy"].spread > 0.5 > found["steady"].spread


def test_results_are_compared_where_rounding_has_not_yet_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Timing((1.0, 1.0, 1.0), 1)
    monkeypatch.setattr(measure, "time_programs", lambda functions, *_, **__: dict.fromkeys(functions, once))
    found = row(workload="logistic_map", size=(16,), checked=(8,))
    assert found.checked_size == (8,) and found.status == "ok"
    assert found.difference is not None and found.difference < 1e-3


def test_a_described_gpu_is_planned_and_nothing_runs() -> None:
    values = measure.answer(
        {
            "workload": "softmax_first",
            "size": [1024, 256],
            "checked": [1024, 256],
            "dtype": "float32",
            "device": "h200",
            "what": "all",
            "seconds": 0.1,
        },
        lambda stage: None,
    )
    assert values["status"] == "ok" and values["jit"]["time"] is None
    assert values["stitched"]["launches"] < values["jit"]["launches"]


def test_short_calls_are_made_inside_one_program() -> None:
    """Their time would else be that of Python."""
    x = jnp.arange(64.0)
    found = time_programs({"short": jax.jit(jnp.sin)}, (x,), rounds=3, seconds=0.1)["short"]
    assert found.in_program and found.calls > 1 and found.median < SHORT
    wide = jnp.ones((2048, 2048))
    long = time_programs({"long": jax.jit(lambda x: jnp.sin(jnp.cos(jnp.exp(x)))), "short": jax.jit(jnp.sin)}, (wide,))
    assert not long["long"].in_program


@pytest.mark.parametrize("function", [jax.jit, stitch_jit], ids=["jit", "stitched"])
def test_no_call_is_taken_out_of_the_loop(function: Any) -> None:
    """Catches a loop that times nothing: in each trip its argument is the same, and XLA computed once before it."""
    once, x = function(lambda x: jnp.tanh(x) / jnp.tanh(x).sum()), jnp.arange(float(1 << 16))
    program: Any = repeated(once, (x,), {}, 7)
    alone, looped = (traffic(f.as_text()) for f in (once.lower(x).compile(), program.func))
    inside = [kernel for kernel in looped.kernels if kernel.launches == 7]
    assert sum(kernel.bytes for kernel in inside) >= 7 * alone.bytes
    assert len(looped.kernels) - len(inside) <= 3  # what fills the first results, and the counter
    np.testing.assert_allclose(program(), np.tanh(x) / np.tanh(x).sum(), rtol=1e-5)


def _compiled_as_one(text: str) -> int:
    """Return the loops that XLA:CPU compiles as one function each."""
    return len(re.findall(r'\w+\(.*xla_cpu_small_call="true"', text))


def test_what_is_measured_is_no_part_of_one_function() -> None:
    """Catches a small kernel that XLA inlines in the loop that measures: there it is not what it is elsewhere, and XLA
    takes for ever to compile some, such as the rotations of a random key. A loop of its own stays as it is.
    """

    def rotated(x: jax.Array, y: jax.Array) -> jax.Array:
        for k in range(20):
            x = x + y
            y = x ^ ((y << (k + 1)) | (y >> (31 - k)))
        return y

    def repeatedly(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda k, z: (z ^ y) + k.astype(z.dtype), x)

    words = (jnp.ones(1, jnp.uint32), jnp.ones(1, jnp.uint32))
    program: Any = repeated(rotated, words, {}, 7)
    assert "while(" in program.func.as_text() and not _compiled_as_one(program.func.as_text())
    np.testing.assert_array_equal(program(), rotated(*words))
    alone = jax.jit(repeatedly).lower(*words).compile().as_text()
    looped: Any = repeated(repeatedly, words, {}, 7)
    assert _compiled_as_one(looped.func.as_text()) >= _compiled_as_one(alone)


def test_programs_take_static_and_keyword_arguments() -> None:
    summed = jax.jit(lambda x, *, axis, by: (x * by).sum(axis), static_argnames="axis")
    program = repeated(summed, (jnp.ones((3, 4)),), {"axis": 1, "by": jnp.float32(2)}, 5)
    np.testing.assert_array_equal(program(), np.full(3, 8.0))
