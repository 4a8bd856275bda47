"""Long chains of functions are cut into loops over rows one after another, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.emit import for_target, kernel_of
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes
from jax_stitch.schedule.model import ScheduledKernel
from tests.fusion import forced
from tests.kernel.programs import normal

STEPS = 20


def chained(*functions: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(h: Any, x: Any) -> Any:
        def step(h: Any, v: Any) -> Any:
            for f in functions:
                h = f(h * 0.5 + v)
            return h, h * v

        return jax.lax.scan(step, h, x)

    return run


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "one": (chained(jnp.tanh), 1),
    "two": (chained(jnp.tanh, jnp.exp), 2),
    "three": (chained(jnp.tanh, jnp.sin, jnp.tanh), 3),
    "four": (chained(*[jnp.tanh] * 4), 4),
    "five": (chained(*[jnp.tanh] * 5), 5),
    "with choices": (chained(*[lambda h: jnp.where(h > 0, jnp.tanh(h), -jnp.tanh(-h))] * 3), 3),
    "no functions": (chained(*[lambda h: h * 2] * 5), 1),
}


def _scheduled(name: str, device: str, dtype: Any = jnp.float32) -> ScheduledKernel:
    target = forced.device(device)
    args = normal(64).astype(dtype), normal(STEPS, 64).astype(dtype)
    (found,) = forced.scheduled(forced.plan_of(forced.graph_of(CASES[name][0], *args), target), target)
    return found


@pytest.mark.parametrize("name", CASES)
def test_no_function_of_a_loop_over_rows_waits_for_another(name: str) -> None:
    """Ten steps written as one (``unroll=10``) waited for ten functions, row by row."""
    scheduled = _scheduled(name, "cpu")
    written = kernel_of(scheduled)
    printed = for_target(scheduled, written)
    assert parse(text(printed)) == printed
    assert not list(verify(printed))
    (loop,) = (s for s in printed.parts[0].body if isinstance(s, st.For))
    assert sum(isinstance(n, st.Rows) for n in nodes(loop)) == CASES[name][1]
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(b.dims).astype(np.float32) for b in written.inputs]
    for got, want in zip(interpret(printed, args), interpret(written, args), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_has_its_text_as_it_was(name: str) -> None:
    scheduled = _scheduled(name, "h200")
    assert for_target(scheduled, kernel_of(scheduled)) == kernel_of(scheduled)
