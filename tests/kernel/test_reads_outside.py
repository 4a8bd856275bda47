"""Reads of a row's values in the cases of a choice move before the choice, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.emit import kernel_of
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.reads_outside import reads_outside
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes
from jax_stitch.schedule.model import ScheduledKernel
from tests.fusion import forced


def with_its_end(x: Any) -> Any:
    d = jnp.diff(x, axis=-1, append=x[:, -1:] * 2 + 0.5)
    return jnp.cumprod(jnp.exp(-d), -1) * d


def between_both(x: Any) -> Any:
    most, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    return jnp.cumsum(jnp.concatenate([most, x[:, 1:-1] * 2, least], -1), -1) + x


def rolled(x: Any) -> Any:
    return jnp.cumsum(jnp.roll(x, 1, -1), -1) - x.mean(-1, keepdims=True)


PROGRAMS: dict[str, Callable[[Any], Any]] = {f.__name__: f for f in (with_its_end, between_both, rolled)}


def _scheduled(name: str, device: str) -> ScheduledKernel:
    target, x = forced.device(device), np.ones((20, 48), np.float32)
    (found,) = forced.scheduled(forced.plan_of(forced.graph_of(PROGRAMS[name], x), target), target)
    return found


def _read_in_cases(body: st.Body) -> list[str]:
    cells = {n.name for s in body for n in nodes(s) if isinstance(n, st.Allocate)}
    cases = (n for s in body for n in nodes(s) if isinstance(n, st.Case))
    lines = (line for case in cases for line in case.body if isinstance(line, st.Define))
    return [line.name for line in lines if isinstance(line.value, Ref) and line.value.name in cells]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_case_reads_a_value_of_its_row(name: str) -> None:
    """GCC made no vectors of such loops: volume rendering took 1.5 times as long. Catches reads that are moved over
    what writes them, and ones that are lost."""
    written = kernel_of(_scheduled(name, "zen4"))
    moved = reads_outside(written)
    assert not list(verify(moved))
    assert not any(_read_in_cases(part.body) for part in moved.parts)
    assert any(_read_in_cases(part.body) for part in written.parts)
    x = np.random.default_rng(0).standard_normal((20, 48)).astype(np.float32)
    for got, want in zip(interpret(moved, [x]), interpret(written, [x]), strict=True):
        np.testing.assert_array_equal(got, want)
