"""``planner=``: the same results whichever chooses, plans that differ, and what is said to a name that is none."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import UnknownPlannerError, stitch, stitch_jit
from jax_stitch.util.options.planner_names import PlannerName
from tests.light import light

__all__ = ["light"]

X = jax.ShapeDtypeStruct((512, 1024), jnp.float32)


def normalised(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows, then columns: the second needs all rows of the first."""
    y = jax.nn.softmax(x, 1)
    return jax.nn.softmax(y * 2, 0), (y * x).sum(0)


@pytest.mark.parametrize("planner", list(PlannerName))
def test_results_do_not_depend_on_the_planner(planner: str) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((128, 96)), jnp.float32)
    wanted = jax.jit(normalised)(x)
    for function in (stitch_jit(normalised, planner=planner), jax.jit(stitch(normalised, planner=planner))):
        for got, want in zip(function(x), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_plans_say_who_made_them_and_differ() -> None:
    plans = {name: stitch_jit(normalised).plan(X, device="h200", planner=name) for name in PlannerName}
    assert [p.planner for p in plans.values()] == list(PlannerName)
    launches = {name: p.launches for name, p in plans.items()}
    assert launches["beam"] <= min(launches.values()) and launches["beam"] < launches["span"] < launches["none"]
    assert not plans[PlannerName.NONE].kernels and launches["none"] == plans[PlannerName.NONE].xla_launches
    assert ", planner span" in str(plans[PlannerName.SPAN])
    assert plans[PlannerName.ILP].to_dict()["planner"] == "ilp"


def test_the_functions_own_planner_is_the_plans() -> None:
    assert stitch_jit(planner="span")(normalised).plan(X, device="h200").planner == "span"


@pytest.mark.parametrize("make", [stitch, stitch_jit, lambda f, **o: stitch_jit(**o)(f)])
def test_an_unknown_planner_is_told_what_there_is(make: Any) -> None:
    with pytest.raises(
        UnknownPlannerError, match="planner is 'greedy', which is none of 'beam', 'ilp', 'span', 'none'"
    ):
        make(normalised, planner="greedy")
    with pytest.raises(UnknownPlannerError, match="'beam'"):
        stitch_jit(normalised).plan(X, planner="greedy")


def test_programs_of_two_planners_are_not_mixed_up() -> None:
    """One function, two planners, one process and one cache: each runs the kernels of its own."""
    kernels = []
    for planner in ("beam", "span", "beam"):
        compiled = stitch_jit(normalised, planner=planner).lower(jnp.ones((4096, 96))).compile()
        text = compiled.as_text()
        kernels.append((text.count("custom-call("), text.count("fusion(")))
    assert kernels[0] == kernels[2] != kernels[1]
