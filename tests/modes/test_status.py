"""``status()``: stitched or not, why, how many kernels, how much faster, at what cost; in every mode and place."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from tests.modes.conftest import LONG, Planner

X = jnp.linspace(-1.0, 1.0, 64 * 96).reshape(64, 96)
MODES = ["now", "auto", "async"]


@pytest.fixture(autouse=True)
def own_cache(cache: Path) -> None:
    """What other tests have planned is none of this one's."""


def make(factor: float) -> Callable[..., Any]:
    """A function that no other test has planned."""

    def softmax(x: Any) -> Any:
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) * factor

    return softmax


def programs(function: Any) -> Any:
    assert function.wait(LONG)
    return function.status().programs


@pytest.mark.parametrize("mode", ["now", "async"])
def test_a_call_of_its_own(mode: str) -> None:
    """Catches: "nothing is left to decide", stitched or not."""
    function = stitch_jit(make(1.5), mode=mode)
    assert str(function.status()) == f"softmax (mode '{mode}'): not called yet"
    function(X)
    (found,) = programs(function)
    assert found.state == "stitched" and found.kernels == 1 and found.replaced >= 2 and found.place == ""
    assert found.planning_seconds > 0 and found.compiling_seconds > 0 and found.measuring_seconds == 0
    text = str(found)
    assert f"(f32[64,96]): runs stitched; one kernel in place of {found.replaced} launches" in text
    assert "not timed" in text and " s of planning, " in text and " s of compiling" in text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("around", "place"),
    [
        (lambda f: jax.jit(lambda x: f(x) + 1), "_lambda"),
        (lambda f: jax.jit(jax.vmap(f)), "softmax"),
        (lambda f: functools.partial(jax.lax.scan, lambda c, _: (f(c), None), xs=None, length=3), "scan"),
        (lambda f: jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())), "_lambda"),
        (lambda f: jax.vmap(f), ""),
    ],
    ids=["jit", "jit of vmap", "scan", "grad", "vmap"],
)
def test_inside_other_programs(around: Any, place: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: "not called yet", and no programs, though the function runs stitched."""
    from jax_stitch.jit.tune import worth

    monkeypatch.setattr(worth, "check_worth", lambda *_: None)
    function = stitch_jit(make(2.5), mode=mode)
    x = X[None] if "vmap" in str(place) or place in ("softmax", "") else X
    jax.block_until_ready(around(function)(x))
    found = programs(function)
    assert found and {p.state for p in found} <= {"stitched", "plain"}
    assert any(p.state == "stitched" and p.kernels and p.replaced for p in found), function.status()
    if place not in ("softmax", ""):
        assert any(place in p.place and f" inside {p.place}: runs" in str(p) for p in found)
    assert function.status().settled and function.status().decided


@pytest.mark.parametrize("mode", MODES)
def test_inside_another_stitched_function(mode: str) -> None:
    inner = stitch_jit(make(3.5), mode=mode)

    @functools.partial(stitch_jit, mode=mode)
    def outer(x: Any) -> Any:
        return inner(x) * 2

    outer(X)
    assert outer.wait(LONG) and programs(outer)[0].state in ("stitched", "trying")
    (found, *_) = programs(inner)
    assert found.state == "part" and "runs as part of outer; outer.status() says" in str(found)


@pytest.mark.parametrize("mode", MODES)
def test_why_it_is_not_stitched(mode: str) -> None:
    @functools.partial(stitch_jit, mode=mode)
    def copied(x: Any) -> Any:
        return x + 1

    copied(X)
    jax.jit(lambda x: copied(x) * 2)(X)
    for found in programs(copied):
        assert found.state in ("plain", "stitched") if mode == "async" else found.state == "plain"
        assert found.state != "plain" or ("worth" in found.detail or "no kernel" in found.detail), found


def test_a_mode_in_which_nothing_is_stitched() -> None:
    function = stitch_jit(make(1.0), mode="off")
    function(X)
    assert str(function.status()) == "softmax (mode 'off'): runs jax.jit; it is not stitched in this mode"


@pytest.mark.parametrize("mode", MODES)
def test_several_shapes(mode: str, planner: Planner, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: equal lines for all shapes, and none that says how each ends."""
    function = stitch_jit(make(4.5), mode=mode)
    with caplog.at_level(logging.INFO, "jax_stitch"):
        for rows in range(2, 8):
            function(X[:rows])
        assert function.wait(LONG)
    types = [f"f32[{rows},96]" for rows in range(2, 8)]
    assert sorted(p.types for p in programs(function)) == types
    ends = [r.getMessage() for r in caplog.records if r.name == "jax_stitch.jit.tiers.making"]
    if mode != "now":
        assert [end.partition(": ")[0] for end in ends] == [f"softmax({t})" for t in types]
        assert all(" s; the next calls" in end or " s in the background" in end for end in ends)


def test_the_lines_of_planning_name_types(caplog: pytest.LogCaptureFixture) -> None:
    function = stitch_jit(make(5.5), mode="now")
    with caplog.at_level(logging.INFO, "jax_stitch"):
        function(X)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("jax_stitch")]
    assert len(lines) == 2 and all(line.startswith("softmax(f32[64,96]): ") for line in lines)


def test_a_program_planned_inside_another_is_known_to_its_own_calls() -> None:
    """Catches: "nothing of it could be stitched", as what is planned once was recorded once."""
    function = stitch_jit(make(6.5), mode="async")
    jax.jit(lambda x: function(x) + 1)(X)
    function(X)
    assert function.wait(LONG)
    own = [p for p in function.status().programs if not p.place]
    assert [p.kernels for p in own] == [1]


def test_many_arguments_are_shortened() -> None:
    function = stitch_jit(lambda *xs: jax.nn.softmax(sum(xs)), mode="now")
    function(*[X] * 7)
    assert programs(function)[0].types == ", ".join(["f32[64,96]"] * 4) + " and 3 more"


def test_what_is_forgotten() -> None:
    """With the cache of the function, and never more than so many programs."""
    function = stitch_jit(make(7.5), mode="now")
    function(X)
    function.clear_cache()
    assert function.status().programs == ()
