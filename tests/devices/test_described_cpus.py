"""CPUs that are only described: to plan for, and to take this machine's for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.devices.cpu import CPU_VARIABLE, cpu, described, unmeasured


def normalised(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.tanh(x), 0)


@pytest.mark.parametrize("name", described())
def test_a_plan_for_each(name: str) -> None:
    """A description that the planner, the scheduler or XLA's compiler does not take."""
    plan = stitch_jit(normalised).plan(jax.ShapeDtypeStruct((512, 256), jnp.float32), device=name)
    assert plan.device.name == name and plan.launches == 1 and not devices.get(name).attached


def test_plans_go_by_the_description() -> None:
    """All planned as this machine's: vectors and caches of each are others."""
    shapes = jax.ShapeDtypeStruct((512, 256), jnp.float32)
    sources = {stitch_jit(normalised).plan(shapes, device=name).kernels[0].source for name in described()}
    assert len(sources) > 1


@pytest.mark.parametrize("name", described())
def test_this_machine_taken_for_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel for other vectors, cores and caches that is wrong where it runs."""
    monkeypatch.setenv(CPU_VARIABLE, name)
    assert cpu() == unmeasured() and cpu().attached and devices.get().description == described()[name].description
    x = np.linspace(-2, 2, 512 * 256, dtype=np.float32).reshape(512, 256)
    np.testing.assert_allclose(stitch_jit(normalised, mode="now")(x), jax.jit(normalised)(x), rtol=1e-5)


def test_an_unknown_name_says_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name that is taken for no name."""
    monkeypatch.setenv(CPU_VARIABLE, "zen-3")
    with pytest.raises(ValueError, match=r"JAX_STITCH_CPU is 'zen-3': write one of zen3, zen4, "):
        unmeasured()
