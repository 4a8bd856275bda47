"""NumPyro: the log density of a model and its gradient, and steps of its samplers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC, NUTS
from numpyro.infer.util import initialize_model, log_density

from tests.libraries.compared import Jit, compared

HEIGHTS = np.array([2.8, 0.8, -0.3, 0.7, -0.1, 0.1, 1.8, 1.2], np.float32)
ERRORS = np.array([1.5, 1.0, 1.6, 1.1, 0.9, 1.1, 1.0, 1.8], np.float32)


def schools(errors: jax.Array, heights: jax.Array | None = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(ERRORS)):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        numpyro.sample("height", dist.Normal(mean + spread * offset, errors), obs=heights)


def test_log_density_and_gradient() -> None:
    values = {"mean": jnp.float32(0.3), "spread": jnp.float32(1.2), "offset": jnp.linspace(-1.0, 1.0, 8)}

    def density(values: Any) -> jax.Array:
        return log_density(schools, (ERRORS, HEIGHTS), {}, values)[0]

    compared(lambda jit: jit(jax.value_and_grad(density))(values))
    batch = jax.tree.map(lambda v: jnp.stack([v, v + 0.1, v * 2]), values)
    compared(lambda jit: jit(jax.vmap(jax.value_and_grad(density)))(batch))


@pytest.mark.slow
def test_steps_of_hamiltonian_monte_carlo() -> None:
    def run(jit: Jit) -> Any:
        kernel = HMC(schools, step_size=0.1, num_steps=5, adapt_step_size=False, adapt_mass_matrix=False)
        state = kernel.init(jax.random.PRNGKey(0), 0, None, (ERRORS, HEIGHTS), {})
        step = jit(lambda state: kernel.sample(state, (ERRORS, HEIGHTS), {}))
        for _ in range(3):
            state = step(state)
        return state.z, state.potential_energy, state.accept_prob

    compared(run, 1e-3)


@pytest.mark.slow
def test_a_step_of_nuts() -> None:
    def run(jit: Jit) -> Any:
        kernel = NUTS(schools, step_size=0.3, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=4)
        state = kernel.init(jax.random.PRNGKey(1), 0, None, (ERRORS, HEIGHTS), {})
        state = jit(lambda state: kernel.sample(state, (ERRORS, HEIGHTS), {}))(state)
        return state.z, state.num_steps

    compared(run, 1e-3)


@pytest.mark.slow
def test_potential_of_an_initialized_model() -> None:
    found = initialize_model(jax.random.PRNGKey(0), schools, model_args=(ERRORS, HEIGHTS))
    compared(lambda jit: jit(jax.value_and_grad(found.potential_fn))(found.param_info.z))
