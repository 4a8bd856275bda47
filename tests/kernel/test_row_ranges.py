"""Loops over rows split where their choices change: each row is done once, and the rows in between ask nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.emit import for_target, kernel_of
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel import expressions, row_ranges
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.row_ranges import split_rows
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes
from jax_stitch.schedule.model import ScheduledKernel
from jax_stitch.util.values import replace
from tests.fusion import forced


def edges(x: Any) -> Any:
    p = jnp.pad(x, 1)
    across = p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2] - p[:-2, 2:] - 2 * p[1:-1, 2:] - p[2:, 2:]
    down = p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:] - p[2:, :-2] - 2 * p[2:, 1:-1] - p[2:, 2:]
    return jnp.sqrt(across**2 + down**2)


def blurred(x: Any) -> Any:
    p = jnp.pad(x, ((0, 0), (2, 2)), mode="edge")
    return sum(p[:, k : k + x.shape[1]] for k in range(5)) / 5


def around(x: Any) -> Any:
    return jnp.roll(x, 3, 1) - 2 * x + jnp.roll(x, -1, 1)


def halves(x: Any) -> Any:
    n = x.shape[1] // 2
    return jnp.concatenate([x[:, :n] * 3, x[:, n:] * 2], 1) + jnp.where(jnp.arange(x.shape[1]) < 5, x, 0)


PROGRAMS: dict[str, Callable[[Any], Any]] = {f.__name__: f for f in (edges, blurred, around, halves)}
SHAPES = (12, 100), (3, 33), (2, 1500)


def _scheduled(name: str, shape: tuple[int, int], device: str = "zen4") -> ScheduledKernel:
    target, x = forced.device(device), np.ones(shape, np.float32)
    (found,) = forced.scheduled(forced.plan_of(forced.graph_of(PROGRAMS[name], x), target), target)
    return found


def _loops(kernel: Kernel) -> list[st.Rows]:
    return [n for s in kernel.parts[0].body for n in nodes(s) if isinstance(n, st.Rows)]


def _asks(s: st.Rows) -> bool:
    return any(v.name == ROW for n in nodes(s) if isinstance(n, expressions.Test) for v in n.value.variables())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_between_the_edges_ask_nothing(name: str, shape: tuple[int, int]) -> None:
    """The edges of an image took 42 us of one core in place of 10. Catches a row that is done twice or not at all, and
    an answer that is taken for known where it is not."""
    written = kernel_of(_scheduled(name, shape))
    split = split_rows(written)
    assert not list(verify(split))
    assert parse(text(split)) == split
    longest = max(_loops(split), key=lambda s: (s.high or 0) - s.low)
    assert longest.high is not None and longest.high - longest.low >= shape[1] / 2 - 2
    assert not _asks(longest)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for got, want in zip(interpret(split, [x]), interpret(written, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a loop whose rows are counted from the wrong one in blocks that begin inside the period."""
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with forced.everything_pays(0):
        got = stitch_jit(PROGRAMS[name], mode="now")(x)
    np.testing.assert_allclose(got, jax.jit(PROGRAMS[name])(x), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("moved", [(0, 1), (1, 0)], ids=["a gap", "twice"])
def test_rows_that_are_left_out_or_done_twice_are_found(moved: tuple[int, int]) -> None:
    split = split_rows(kernel_of(_scheduled("around", (12, 100))))
    first, second, *_ = (s for s in split.parts[0].body if isinstance(s, st.Rows))
    assert first.high is not None
    end = first.high + moved[0] - moved[1]
    wrong = replace(first, high=end - moved[0] * 2)
    body = tuple(wrong if s is first else s for s in split.parts[0].body)
    if moved[1]:
        body = tuple(replace(second, low=second.low - 1) if s is second else s for s in split.parts[0].body)
    made = replace(split, parts=(replace(split.parts[0], body=body),))
    assert any("are not the whole" in str(f) for f in verify(made))


def test_of_what_is_long_the_loops_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written = kernel_of(_scheduled("edges", (12, 100)))
    monkeypatch.setattr(row_ranges, "MOST_STATEMENTS", 10)
    assert split_rows(written) is written


def test_a_gpu_has_its_text_as_it_was() -> None:
    scheduled = _scheduled("edges", (12, 100), "h200")
    assert for_target(scheduled, kernel_of(scheduled)) == kernel_of(scheduled)


def test_results_in_place() -> None:
    """A donated argument could not be written over: the second of two loops over rows seemed to read what the first
    had written. Catches loops that are taken to go through the same rows."""

    def added(x: Any, y: Any) -> Any:
        return x * 2 + jnp.roll(y, 3, 1)

    x, y = (np.random.default_rng(k).standard_normal((50, 64)).astype(np.float32) for k in range(2))
    with forced.everything_pays(0):
        f = stitch_jit(added, mode="now", donate_argnums=0)
        (kernel,) = f.plan(x, y).kernels
        got = f(jnp.asarray(x), y)
    assert "ST_EACH_ROW_FROM(3, 64)" in kernel.source
    np.testing.assert_array_equal(got, x * 2 + np.roll(y, 3, 1))
