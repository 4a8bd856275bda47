"""Choices that all rows make alike stand around loops over rows: the text before and after, and the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.emit import for_target, kernel_of
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel import choices_outside as module
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.choices_outside import choices_outside
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.walk import nodes, variables
from jax_stitch.latency.model import counted
from jax_stitch.schedule.model import ScheduledKernel
from tests.fusion import forced
from tests.kernel.programs import normal, whole


def interleaved(a: Any, b: Any) -> Any:
    zero = jnp.zeros((), a.dtype)
    return jax.lax.pad(a, zero, [(0, 1, 1), (0, 0, 0)]) + jax.lax.pad(b, zero, [(1, 0, 1), (0, 0, 0)])


def scanned(a: Any, b: Any) -> Any:
    return jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b), axis=1)[1]


def in_steps(h: Any, x: Any, y: Any) -> Any:
    return jax.lax.scan(lambda h, v: (h * 0.5 + v, h), h, jnp.concatenate([x, y * 2]))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "interleaved": (interleaved, (normal(4, 64), normal(4, 64))),
    "of whole numbers": (interleaved, (whole(9, 5, 96), whole(9, 5, 96))),
    "of sub-word floats": (interleaved, (normal(8, 64).astype(jnp.bfloat16), normal(8, 64).astype(jnp.bfloat16))),
    "of 8 columns": (interleaved, (normal(40, 8), normal(40, 8))),
    "of 33 columns": (interleaved, (normal(4, 33), normal(4, 33))),
    "associative scan": (scanned, (normal(2, 16, 64), normal(2, 16, 64))),
    "concatenated": (lambda x, y: jnp.concatenate([x, y * 2, x]) * 3, (normal(5, 64), normal(9, 64))),
    "in steps": (in_steps, (normal(64), normal(5, 64), normal(9, 64))),
    "padded": (lambda x: jnp.pad(x, ((2, 3), (0, 0))) * 2, (normal(40, 64),)),
    "padded both ways": (lambda x: jnp.pad(x, ((2, 3), (1, 4))) * 2, (normal(40, 64),)),
}


def _scheduled(name: str, device: str) -> tuple[ScheduledKernel, ...]:
    function, args = CASES[name]
    target = forced.device(device)
    return tuple(forced.scheduled(forced.plan_of(forced.graph_of(function, *args), target), target))


def _asked_by_all(kernel: Kernel) -> Iterator[st.Choice]:
    """The choices inside loops over rows that ask nothing that rows differ by."""
    for rows in (n for part in kernel.parts for s in part.body for n in nodes(s) if isinstance(n, st.Rows)):
        defined = {n.name for n in nodes(rows) if isinstance(n, st.Define)} | {ROW}
        for s in rows.body:
            if isinstance(s, st.Choice):
                asked = {v for case in s.cases for t in case.tests for v in variables(t.value)}
                if not asked & defined:
                    yield s


@pytest.mark.parametrize("name", CASES)
def test_a_loop_over_rows_asks_what_rows_differ_by(name: str) -> None:
    """Each row asked what its neighbours asked, and the host's compiler made no vectors of the loop."""
    for scheduled in _scheduled(name, "cpu"):
        written = kernel_of(scheduled)
        printed = for_target(scheduled, written)
        assert parse(text(printed)) == printed
        assert not list(_asked_by_all(printed))
        rng = np.random.default_rng(1)
        args = [rng.integers(-9, 9, b.dims).astype(_numpy(b.dtype)) for b in written.inputs]
        for got, want in zip(interpret(printed, args), interpret(written, args), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("columns", "period"), [(8, 8), (64, 64), (3, 240)])
def test_a_group_of_rows_is_a_run_of_neighbours_that_fills_a_vector(columns: int, period: int) -> None:
    """Catches eight columns flattened with their rows: a place then divides its number for each choice, and no loop is
    of vectors. Of three columns no vector is filled either way.
    """
    device = forced.device("cpu")
    graph = forced.graph_of(interleaved, normal(40, columns), normal(40, columns))
    (scheduled,) = forced.scheduled(forced.plan_of(graph, device), device)
    assert {part.split.period for part in scheduled.parts} == {period}


BEFORE = """
      body {
        rows {
          var pad_3: f32
          choice {
            if batch - 1 in 0.. step 2 {
              let b_1_1: f32 = b_1[row + ((batch + 1 / 2) - 1 in 0..3) * 64]
              pad_3 = b_1_1
            }
            else {
              pad_3 = 0.0:f32
            }
          }
          var pad_2: f32
          choice {
            if batch in ..6 step 2 {
              let a_1_1: f32 = a_1[row + (batch / 2) * 64]
              pad_2 = a_1_1
            }
            else {
              pad_2 = 0.0:f32
            }
          }
          let add_1_1: f32 = add(pad_2, pad_3)
          only first_lane: add_1[batch * 64 + row] = add_1_1
        }
      }
"""
AFTER = """
      body {
        choice {
          if batch - 1 in 0.. step 2 {
            rows {
              var pad_3: f32
              let b_1_1: f32 = b_1[row + ((batch + 1 / 2) - 1 in 0..3) * 64]
              pad_3 = b_1_1
              var pad_2: f32
              pad_2 = 0.0:f32
              let add_1_1: f32 = add(pad_2, pad_3)
              only first_lane: add_1[batch * 64 + row] = add_1_1
            }
          }
          else {
            rows {
              var pad_3: f32
              pad_3 = 0.0:f32
              var pad_2: f32
              let a_1_1: f32 = a_1[row + (batch / 2) * 64]
              pad_2 = a_1_1
              let add_1_1: f32 = add(pad_2, pad_3)
              only first_lane: add_1[batch * 64 + row] = add_1_1
            }
          }
        }
      }
"""


def test_the_text_before_and_after() -> None:
    """One choice stands around the loops, and the other one is decided by it."""
    (scheduled,) = _scheduled("interleaved", "cpu")
    written = kernel_of(scheduled)
    assert BEFORE in text(written)
    assert AFTER in text(choices_outside(written))


def _numpy(dtype: str) -> Any:
    return {"bf16": jnp.bfloat16, "s32": np.int32}.get(dtype, np.float32)


@pytest.mark.parametrize("name", ["interleaved", "associative scan", "concatenated", "padded", "in steps"])
def test_these_loops_did_ask(name: str) -> None:
    assert any(list(_asked_by_all(kernel_of(s))) for s in _scheduled(name, "cpu"))


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_has_its_text_as_it_was(name: str) -> None:
    """Its threads have a row each, and ask once either way: copies would only make the text longer."""
    for scheduled in _scheduled(name, "h200"):
        assert for_target(scheduled, kernel_of(scheduled)) == kernel_of(scheduled)


def test_an_interleaving_is_predicted_as_half_of_each() -> None:
    """Both halves were counted for every row."""
    (scheduled,) = _scheduled("interleaved", "cpu")
    (part,) = counted(scheduled, forced.device("cpu"))
    assert part.work["load"] == 8 * 64


def test_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop with more ways through it than are worth their compilation stays one."""
    (scheduled,) = _scheduled("associative scan", "cpu")[:1]
    monkeypatch.setattr(module, "MOST_STATEMENTS", 3)
    assert choices_outside(kernel_of(scheduled)) == kernel_of(scheduled)


def test_indices_with_too_many_values_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    (scheduled,) = _scheduled("interleaved", "cpu")
    monkeypatch.setattr(module, "MOST_POINTS", 7)
    assert choices_outside(kernel_of(scheduled)) == kernel_of(scheduled)
