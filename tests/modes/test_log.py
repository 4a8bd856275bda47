"""What is told to ``logging``, and on the standard error: nothing unless asked, then what was done in which time."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from jax_stitch.util.log_output import LOG_VARIABLE, follow
from tests.modes.conftest import LONG
from tests.seeded_cache import seeded

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
    own = [
        m for m in messages if m.startswith("softmax_of_product(f32[3,4]): ")
    ]  # The background may still do another test's.
    for message, words in zip(own, (("planned for cpu", "explore"), ("stitched",), ("background",)), strict=True):
        assert all(word in message for word in words)


def test_details(caplog: pytest.LogCaptureFixture) -> None:
    """Every kernel and every boundary that the plan shows."""
    function = stitch_jit(lambda x: jax.nn.softmax(jnp.fft.fft(x).real * 2, -1))
    with caplog.at_level(logging.DEBUG, "jax_stitch"):
        plan = function.plan(X)
    details = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert sum(": kernel " in line for line in details) == len(plan.kernels) > 0
    assert sum(": boundary at " in line for line in details) == len(plan.boundaries) > 0
    assert any(plan.kernels[0].name in line for line in details)
    assert any(plan.boundaries[0].reason in line for line in details)


def test_log_compiles(caplog: pytest.LogCaptureFixture) -> None:
    with jax.log_compiles(True):
        stitch_jit(make())(X)
    warned = {record.name for record in caplog.records if record.levelno == logging.WARNING}
    own = {name for name in warned if name.startswith("jax_stitch")}
    assert own == {
        "jax_stitch.pipeline",
        "jax_stitch.jit.lowering",
    }


PROGRAM = """
import sys
import jax, numpy as np
from jax_stitch import stitch_jit
if len(sys.argv) > 1:
    jax.config.update("jax_debug_log_modules", sys.argv[1])
    jax.config.update("jax_logging_level", sys.argv[2] or None)
found = stitch_jit(lambda x: jax.nn.softmax(x) * 3, mode="now")(np.ones((4, 5), np.float32))
print(np.asarray(found)[0, 0])
"""

WAYS: dict[str, tuple[dict[str, str], list[str], bool, bool]] = {
    "nothing": ({}, [], False, False),
    "info": ({"JAX_STITCH_LOG": "info"}, [], True, False),
    "debug": ({"JAX_STITCH_LOG": "DEBUG"}, [], True, True),
    "off": ({"JAX_STITCH_LOG": "off"}, [], False, False),
    "JAX's variable": ({"JAX_DEBUG_LOG_MODULES": "jax_stitch"}, [], True, True),
    "JAX's variable, of one module": (
        {"JAX_DEBUG_LOG_MODULES": "jax._src.mesh,jax_stitch.jit.lowering"},
        [],
        True,
        True,
    ),
    "JAX's option": ({}, ["jax_stitch", ""], True, True),
    "JAX's option, where its own handler works": ({}, ["jax_stitch", "WARNING"], True, True),
    "JAX's option, of another": ({}, ["jax._src.mesh", ""], False, False),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_standard_error(way: str, tmp_path: Path) -> None:
    """What was documented printed nothing: JAX's handler drops all, which ``caplog`` does not show."""
    variables, arguments, info, debug = WAYS[way]
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(seeded(tmp_path)), "JAX_STITCH_LOG": ""} | variables
    command = [sys.executable, "-c", PROGRAM, *arguments]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG, check=True)
    assert found.stdout == "0.6\n"
    # That it takes long on a busy machine is told without being asked.
    spoken_of = re.compile(r"stitching <lambda>|<lambda>\(.*\): stitched in")
    lines = [line for line in found.stderr.splitlines() if not spoken_of.match(line)]
    assert sum("<lambda>(f32[4,5]): stitched for cpu in" in line for line in lines) == info, "once"
    assert any(": kernel " in line for line in lines) == debug
    assert bool(lines) == info


def test_a_wrong_variable_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_VARIABLE, "loud")
    with pytest.warns(UserWarning, match="JAX_STITCH_LOG is 'loud', which is none of 'off', 'info', 'debug'"):
        follow()
