"""What is not worth the time is not planned, or not compiled; where somebody asks for it, it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.programs.record import NotWorthStitching
from jax_stitch.jit.rebuilt import find
from jax_stitch.jit.tune import worth
from jax_stitch.pipeline import stitch_capture
from tests.modes.conftest import LONG

SMALL, LARGE, SQUARE = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8, 16), (4096, 1024), (1024, 1024)))


def norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def bound(fun: Any, *args: Any) -> Any:
    cpu = devices.get("cpu")
    return worth.bound(capture(fun, args, cpu).text, cpu)


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (lambda x: x + 1, (SMALL,)),
        (lambda x: jnp.tanh(x) * x + 2, (LARGE,)),
        (lambda x: x.sum(-1), (LARGE,)),
        (lambda x: x, (SMALL,)),
    ],
    ids=["one operation", "one fusion", "one reduction", "nothing"],
)
def test_nothing_can_be_saved(fun: Any, args: Any) -> None:
    assert bound(fun, *args).part < worth.LEAST
    with pytest.raises(NotWorthStitching, match="nothing worth stitching: at most"):
        worth.check_worth(capture(fun, args, devices.get("cpu")), devices.get("cpu"))


def test_bytes_do_not_bound_a_product() -> None:
    """A transposed matrix by a vector takes XLA:CPU ten times as long as its bytes need: it was never planned."""
    assert bound(lambda x: x @ x, SQUARE) is None
    fun = stitch_jit(lambda w, x: jnp.tanh(w.T @ x))
    args = np.full((600, 600), 0.01, np.float32), np.ones(600, np.float32)
    np.testing.assert_allclose(fun(*args), np.tanh(args[0].T @ args[1]), rtol=1e-5)
    assert fun.wait(60)
    assert "nothing worth" not in str(fun.status())


@pytest.mark.parametrize(
    ("rows", "donated", "is_worth_it"),
    [(8192, (), True), (8191, (), False), (8192, (0,), False)],
    ids=["its memory is new", "it is kept by the C library", "it is an argument's"],
)
def test_the_memory_of_large_results(rows: int, donated: tuple[int, ...], is_worth_it: bool) -> None:
    """From 32 MB on the system makes a result's pages at each call: huge ones, which our kernels ask for, in less
    time.
    """
    cpu, x = devices.get("cpu"), jax.ShapeDtypeStruct((rows, 1024), jnp.float32)
    captured = capture(lambda x: jnp.tanh(x) * 2, (x,), cpu, donated=donated)
    assert (worth.bound(captured.text, cpu, captured.homes).part > worth.LEAST) is is_worth_it
    stitched = stitch_capture(captured, cpu)
    assert len(stitched.kernels) == is_worth_it
    if is_worth_it:
        assert len(worth.worthwhile(stitched).kernels) == 1


def test_a_loop_that_carries_a_large_array_makes_no_new_one() -> None:
    cpu, x = devices.get("cpu"), jax.ShapeDtypeStruct((8192, 1024), jnp.float32)

    def fun(x: Any, w: Any) -> Any:
        return jax.lax.while_loop(lambda v: v[0, 0] < 9, lambda v: jnp.tanh(v @ w) * 2, x)

    assert not stitch_capture(capture(fun, (x, SQUARE), cpu), cpu).kernels


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_several_passes_can_become_one(x: Any) -> None:
    found = bound(norm, x)
    assert found.part > 0.3 and 0 < found.saved < found.seconds
    worth.check_worth(capture(norm, (x,), devices.get("cpu")), devices.get("cpu"))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jnp.cumsum(x, -1),
        lambda x: jnp.sort(x, -1),
        lambda x: jax.lax.while_loop(lambda v: v.sum() < 1e9, lambda v: v * 2, x),
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 2), "VALID"),
    ],
    ids=["cumsum", "sort", "while", "pooling"],
)
def test_what_bytes_do_not_bound(fun: Any) -> None:
    """One kernel of XLA's, which may take many times as long as its bytes need: nobody knows before it is tried."""
    assert bound(fun, LARGE) is None


def test_a_loop_counts_by_its_trips() -> None:
    """One that XLA compiles as one kernel by nothing: it counted as one launch of few bytes, so that no loop was worth
    stitching.
    """
    once, often = (bound(lambda x, n=n: jax.lax.fori_loop(0, n, lambda i, v: norm(v), x), SMALL) for n in (10, 1000))
    assert once is None or often.saved > 50 * once.saved


def test_small_kernels_beside_large_ones_are_not_made() -> None:
    """Their gain would be lost in the noise; the plan says so. Together they may not be worth much either."""
    large, small = jnp.ones((4096, 1024)), jnp.ones((8, 16))

    def both(x: Any, y: Any) -> Any:
        return norm(x), jnp.sort(norm(y.T @ y)[:4] @ jnp.ones((16, 4)))

    planned = stitch_capture(capture(both, (large, small), devices.get("cpu")), devices.get("cpu"))
    found = worth.worthwhile(planned)
    assert 1 <= len(found.kernels) <= len(planned.kernels)
    kept = {k.source.name for k in found.kernels}
    biggest = max(planned.kernels, key=lambda k: k.scheduled.bytes_read)
    assert biggest.source.name in kept
    for kernel in planned.kernels:
        if kernel.source.name not in kept:
            assert kernel.scheduled.bytes_read < biggest.scheduled.bytes_read / 1000
            assert any("next to nothing" in note for note in found.plan.notes)


def test_many_small_gains_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is below what a kernel has to save, all of them together are most of the time."""
    monkeypatch.setattr(worth, "_COMPILE_SECONDS", float("inf"))

    def layers(x: Any) -> Any:
        for n in range(8):
            x = norm(x @ jnp.full((16, 16), 0.1 * n))
        return x

    planned = stitch_capture(capture(layers, (SMALL,), devices.get("cpu")), devices.get("cpu"))
    try:
        left = len(planned.kernels) - len(worth.worthwhile(planned).kernels)
    except NotWorthStitching:
        left = len(planned.kernels)
    assert left <= len(planned.kernels) // 4


@pytest.mark.parametrize("mode", ["auto", "now", "async"])
def test_only_auto_is_sparing(mode: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(find, "make_elsewhere", lambda *_: None)
    monkeypatch.setattr(worth, "check_worth", lambda captured, device: asked.append(captured.name))
    function = stitch_jit(lambda x: norm(x) * 3, mode=mode)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_allclose(function(x), norm(x) * 3, rtol=1e-5)
    assert function.wait(LONG)
    assert asked == (["<lambda>"] if mode == "auto" else [])


def test_nothing_worth_it_is_plain_and_kept(cache: Path) -> None:
    """The next one does not even ask."""
    for n in range(2):
        function = stitch_jit(lambda x: x * 5, mode="auto")
        assert function(3.0) == 15.0
        assert n == 0 or function.wait(0)
        assert function.wait(LONG)
        (program,) = function.status().programs
        assert program.state == "plain" and "nothing worth stitching" in program.detail


def test_a_plan_without_kernels_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was planned again by every process."""
    monkeypatch.setattr(find, "make_elsewhere", lambda *_: None)
    monkeypatch.setattr(worth, "check_worth", lambda captured, device: None)
    function = stitch_jit(lambda x: x @ x, mode="auto")
    function(np.ones((512, 512), np.float32))
    assert function.wait(LONG)
    (program,) = function.status().programs
    assert program.state == "plain" and "no kernel is predicted to be faster" in program.detail
    assert len(list((cache / "verdicts").iterdir())) == 2, "of the call, and of the program"


def test_inside_another_trace_the_verdict_counts(cache: Path) -> None:
    """Nothing is stitched there that is known to be not worth it, nor is there a warning."""
    function = stitch_jit(lambda x: x * 7, mode="auto")
    text = jax.jit(lambda x: function(x) + 0).lower(3.0).as_text()
    assert "custom_call" not in text
    assert list((cache / "verdicts").iterdir())


def test_a_library_of_the_cpu_is_not_bounded_by_its_bytes() -> None:
    """XLA has one kernel for a softmax, by YNN, which moves no byte too many and takes twice as long as those need. By
    bytes alone nothing could be saved, and the default mode left it."""
    x = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    captured = capture(lambda x: jax.nn.softmax(x, -1), (x,), devices.get("cpu"))
    worth.check_worth(captured, devices.get("cpu"))
    planned = stitch_capture(captured, devices.get("cpu"))
    assert len(worth.worthwhile(planned).kernels) == len(planned.kernels) == 1
