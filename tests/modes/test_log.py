"""What is told to ``logging``: nothing unless asked, then what was done and how long it took."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from tests.modes.conftest import LONG

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)


def make() -> Any:
    """A function with kernels of its own on both sides of a boundary, and with no memory of other tests."""

    def softmax_of_product(x: Any) -> Any:
        return jax.nn.softmax(jax.nn.softmax(x) @ jnp.ones((4, 5)))

    return softmax_of_product


@pytest.mark.parametrize("mode", ["now", "async"])
def test_silence(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    function = stitch_jit(make(), mode=mode)
    function(X)
    assert function.wait(LONG)
    assert capfd.readouterr() == ("", "")
    logger = logging.getLogger("jax_stitch")
    assert not logger.handlers and logger.level == logging.NOTSET and logger.propagate


def test_a_line_for_each_step(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jax_stitch"):
        function = stitch_jit(make(), mode="async")
        function(X)
        assert function.wait(LONG)
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("jax_stitch")]
    own = [m for m in messages if m.startswith("softmax_of_product: ")]  # The background may still do another test's.
    for message, words in zip(own, (("planned for cpu", "explore"), ("stitched",), ("background",)), strict=True):
        assert all(word in message for word in words)


def test_details(caplog: pytest.LogCaptureFixture) -> None:
    """Every kernel and every boundary that the plan shows."""
    function = stitch_jit(make())
    with caplog.at_level(logging.DEBUG, "jax_stitch"):
        plan = function.plan(X)
    details = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert sum(": kernel " in line for line in details) == len(plan.kernels) > 0
    assert sum(": boundary at " in line for line in details) == len(plan.boundaries) > 0
    assert any(plan.kernels[0].name in line for line in details)
    assert any(plan.boundaries[0].reason in line for line in details)


def test_the_ways_to_ask_jax(caplog: pytest.LogCaptureFixture) -> None:
    def told(level: int) -> set[str]:
        names = {record.name for record in caplog.records if record.levelno == level}
        caplog.clear()
        return {name for name in names if name.startswith("jax_stitch")}

    with jax.log_compiles(True):
        stitch_jit(make())(X)
    assert told(logging.WARNING) == {"jax_stitch.pipeline", "jax_stitch.lowering"}
    jax.config.update("jax_debug_log_modules", "jax_stitch")
    try:
        assert logging.getLogger("jax_stitch").handlers, "JAX writes it to the standard error"
        stitch_jit(make())(X)
        assert {"jax_stitch.pipeline"} <= told(logging.DEBUG)
    finally:
        jax.config.update("jax_debug_log_modules", "")
