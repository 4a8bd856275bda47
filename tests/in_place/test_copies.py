"""Copies that donation and carries cost, in the programs that XLA makes with our kernels. Catches: an alias that is not
declared, or declared where XLA then has to copy.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.copies import PROGRAMS, Counted, copies, count, holds, measure, table
from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", sorted(PROGRAMS, key="moving average".__ne__))  # The soonest done comes first.
def test_no_more_copies_than_by_xla(name: str, device: str) -> None:
    if device == "h200" and not cuda_plugin_installed():
        pytest.skip("needs JAX's CUDA plugin, for XLA's GPU compiler")
    rows = count(name, 64, devices.get(device))
    assert [r.way for r in rows] == ["jax.jit", "before", "now"]
    assert holds(rows), table(rows)


def test_copies_are_counted_where_there_are_some() -> None:
    """Else the test above passes whatever is copied."""
    rows = {r.way: r for r in count("momentum", 64, devices.get("cpu"))}
    assert rows["before"].copies == 8 and rows["now"].copies == 0
    assert rows["before"].copied_bytes > 0 == rows["now"].copied_bytes
    worse = [Counted("p", "cpu", way, 1, n, 8 * n) for way, n in (("jax.jit", 1), ("before", 3), ("now", 2))]
    assert not holds(worse)


def test_memory_and_time_on_the_cpu() -> None:
    peaks, times = measure("moving average", 64, 0.1)
    # XLA has a table of the addresses of a call's results, in lines of 64 bytes.
    assert peaks["now"] <= peaks["jax.jit"] + 64 and set(times) == set(peaks)


def test_plans_keep_donation() -> None:
    """Of arguments by number and by name, behind static ones, in pytrees; the texts are what is counted."""

    def step(n: int, state: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        return {k: jnp.tanh(v) * n + x for k, v in state.items()}

    state, x = {"a": jnp.ones((64, 64)), "b": jnp.ones((64, 64))}, jnp.ones((64, 64))
    options: Any
    for options in ({"donate_argnums": (1,)}, {"donate_argnames": "state"}):
        plan = stitch_jit(step, static_argnums=0, **options).plan(2, state, x, device="cpu")
        for text in (plan.xla_hlo, plan.stitched_hlo):
            assert "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }" in text
            assert not copies(text)
        assert plan.stitched_traffic.launches == plan.launches
    plan = stitch_jit(step, static_argnums=0).plan(2, state, x, device="cpu")
    assert "input_output_alias" not in plan.xla_hlo + plan.stitched_hlo


def test_the_stitched_text_of_a_plan_without_kernels_is_xlas() -> None:
    plan = stitch_jit(lambda x: x @ x).plan(jnp.ones((8, 8)), device="cpu")
    assert not plan.kernels and plan.stitched_hlo == plan.xla_hlo
