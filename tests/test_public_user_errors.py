"""Errors that say what to do show the user's own lines; all others keep their traceback."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import compare, plan_hlo, stitch, stitch_jit
from jax_stitch.backend.compile import NvrtcMissing
from jax_stitch.devices import UnknownDeviceError
from jax_stitch.frontend.capture.errors import CudaPluginMissing, UnstitchableError
from jax_stitch.util.user_errors import UserError

X = jnp.ones((64, 64))


@stitch_jit
def running(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, -1) / x.sum()


@stitch_jit(strict=True)
def referring(x: jax.Array) -> jax.Array:
    held = jax.new_ref(x)
    held[...] += 1.0
    return held[...]


def files(error: BaseException) -> set[str]:
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


MISTAKES: dict[str, Callable[[], object]] = {
    "a device": lambda: running.plan(X, device="h2000"),
    "a planner": lambda: running.plan(X, device="cpu", planner="beem"),
    "a planner, at once": lambda: stitch(jnp.cumsum, planner="beem"),
    "a mode": lambda: stitch_jit(jnp.cumsum, mode="nwo"),
    "a template": lambda: running.plan(X, device="cpu", templates="reduce_sum[GRID-"),
    "a dump": lambda: plan_hlo("no hlo at all", device="cpu"),
    "a device to compare on": lambda: compare(running, X, devices=("h2000",)),
    "an option": lambda: stitch_jit(jnp.cumsum, mod="now"),
    "an option of plan": lambda: running.plan(X, devcie="cpu"),
    "a word for a function": lambda: stitch_jit("now"),
    "an instruction": lambda: running.plan(X, device="cpu").explain("sbu.7"),
    "a graph": lambda: running.plan(X, device="cpu").to_networkx("ops"),
    "a device for a plan": lambda: running.plan(X, device="cpu").diff("a100"),
    "what cannot be stitched": lambda: referring.plan(X),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_the_users_line(mistake: str) -> None:
    """A script printed our frames above the message, which says all that there is to say."""
    with pytest.raises(UserError) as caught:
        MISTAKES[mistake]()
    assert files(caught.value) == {__file__}
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_so_does_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> None:
        raise NvrtcMissing("no NVRTC: pip install it")

    monkeypatch.setattr("jax_stitch.inspect.report.planning.make_plan", missing)
    with pytest.raises(NvrtcMissing) as caught:
        running.plan(X, device="h200")
    assert files(caught.value) == {__file__}


def test_the_filter_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(UnknownDeviceError) as caught:
            running.plan(X, device="h2000")
    finally:
        jax.config.update("jax_traceback_filtering", before)
    assert len(files(caught.value)) > 1


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, KeyError])
def test_an_exception_of_the_users_function_keeps_its_traceback(kind: type[Exception]) -> None:
    """Nobody would find the line that raised it."""

    def inner(x: jax.Array) -> jax.Array:
        raise kind("mine")

    with pytest.raises(kind, match="mine") as caught:
        stitch_jit(lambda x: inner(x)).plan(X)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "inner"


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report would lack the place."""

    def broken(*arguments: object, **options: object) -> None:
        raise AssertionError("defect")

    monkeypatch.setattr("jax_stitch.inspect.report.planning.make_plan", broken)
    with pytest.raises(AssertionError) as caught:
        running.plan(X, device="cpu")
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "_plan" in names and names[-1] == "broken"


@pytest.mark.parametrize("kind", [CudaPluginMissing, NvrtcMissing, UnknownDeviceError, UnstitchableError])
def test_they_are_still_what_they_were(kind: type[Exception]) -> None:
    """Whoever catches a ValueError or a RuntimeError catches them."""
    assert issubclass(kind, UserError) and issubclass(kind, ValueError | RuntimeError)
