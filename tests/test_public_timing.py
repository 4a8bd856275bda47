"""Timing in turn, and numbers as text."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.util.formatting import format_bytes, format_ratio, format_seconds, shorten, text_table
from jax_stitch.util.timing import Timing, geometric_mean, repeated, time_in_turn


def sleeper(seconds: float, log: list[str], name: str) -> Callable[[], object]:
    value = jnp.zeros(())

    def run() -> object:
        log.append(name)
        time.sleep(seconds)
        return value

    return run


def test_ratio_of_two_functions() -> None:
    log: list[str] = []
    timings = time_in_turn(
        {"slow": sleeper(0.004, log, "s"), "fast": sleeper(0.001, log, "f")}, rounds=5, sample_seconds=0.04
    )
    assert timings["slow"].median / timings["fast"].median == pytest.approx(4, rel=0.5)
    assert timings["fast"].median == pytest.approx(0.001, rel=0.8)
    assert timings["fast"].calls > timings["slow"].calls


def test_functions_take_turns() -> None:
    """Timing all of one and then all of the other would let a throttled machine favour one."""
    log: list[str] = []
    time_in_turn({"a": sleeper(0.002, log, "a"), "b": sleeper(0.002, log, "b")}, rounds=4, sample_seconds=0.0001)
    assert "".join(log) == "aabb" + "abba" * 2


def test_time_budget_bounds_the_rounds_but_three_are_made() -> None:
    log: list[str] = []
    timings = time_in_turn({"a": sleeper(0.01, log, "a")}, rounds=1000, seconds=0.0, sample_seconds=0.0001)
    assert len(timings["a"].samples) == 3


def test_garbage_collection_is_restored_after_a_failure() -> None:
    calls = iter(range(4))

    def fails() -> object:
        if next(calls) == 3:
            raise RuntimeError("boom")
        return jnp.zeros(())

    with pytest.raises(RuntimeError, match="boom"):
        time_in_turn({"fails": fails}, sample_seconds=1e-9)
    assert gc.isenabled()


def test_spread_is_relative() -> None:
    assert Timing((1.0, 1.0, 1.0), 1).spread == 0
    assert Timing((1.0, 2.0, 3.0, 4.0, 5.0), 1).spread == pytest.approx(2 / 3)
    assert Timing((1.0,), 1).spread == 0


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (33_554_432, "33.6 MB"), (4.8e12, "4.8 TB"), (999_900, "1 MB")],
)
def test_bytes(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.00123, "1.23 ms"), (4.5e-6, "4.5 us"), (12e-9, "12 ns"), (0.9999, "1 s")]
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_ratio_of_nothing() -> None:
    assert format_ratio(1, 0) == "-"
    assert format_ratio(1, 4) == "0.25x"


def test_table_lines_up() -> None:
    assert text_table(("a", "n"), [("long", "1"), ("x", "100")], right=(1,)).splitlines() == [
        "a       n",
        "----  ---",
        "long    1",
        "x     100",
    ]
    assert shorten("abcdef", 4) == "abc…"


def test_numpy_arguments_are_no_constants_of_the_timed_program() -> None:
    """XLA computed what depends on them alone before the loop: a product of 64 x 64 took 161 ns."""
    x = np.eye(64, dtype=np.float32)
    program = repeated(jax.jit(lambda x: x @ x), (x,), {}, 7)
    (inside,) = program.args[0]
    assert inside[0] is x
    text = program.func.as_text()
    loop = next(line for line in text.splitlines() if " while(" in line)
    body = re.search(r"body=(\S+?)[,\s]", loop)
    assert body is not None and "dot" in text.split(f"{body[1]} (")[1].split("\n}")[0]
