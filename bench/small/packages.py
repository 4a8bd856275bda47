"""Programs of public packages, with the version of each that an environment has.

They are timed where they are named, or with ``--packages``; one whose package is not installed is said to be left out.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.made import Made, Program, normal, uniform


def predators(batch: int = 16) -> Made:
    """diffrax: predators and prey by adaptive steps, a batch of starts."""
    import diffrax

    def flow(t: Any, y: Any, rates: Any) -> Any:
        return jnp.stack([rates[0] * y[0] - rates[1] * y[0] * y[1], rates[2] * y[0] * y[1] - rates[3] * y[1]])

    def solve(y: Any, rates: Any) -> Any:
        control = diffrax.PIDController(rtol=1e-4, atol=1e-6)
        given = {"t0": 0.0, "t1": 4.0, "dt0": 0.1, "y0": y, "args": rates, "stepsize_controller": control}
        return diffrax.diffeqsolve(diffrax.ODETerm(flow), diffrax.Tsit5(), **given).ys

    return jax.vmap(solve, (0, None)), (uniform(0, 5.0, 12.0, batch, 2), np.array([1.1, 0.4, 0.1, 0.4]))


def fitted(steps: int = 20) -> Made:
    """diffrax: the gradient of a fit to an oscillation, through fixed steps."""
    import diffrax

    def loss(rates: Any, y: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, r: jnp.stack([y[1], -r[0] * y[0] - r[1] * y[1]]))
        given = {"t0": 0.0, "t1": 2.0, "dt0": 2.0 / steps, "y0": y, "args": rates}
        found = diffrax.diffeqsolve(term, diffrax.Heun(), **given, saveat=diffrax.SaveAt(t1=True)).ys
        return jnp.sum(found**2)

    return jax.grad(loss), (np.array([2.0, 0.3]), np.array([1.0, 0.0]))


def gated_cell(steps: int = 32, inputs: int = 16, hidden: int = 32) -> Made:
    """Equinox: the gradient through a scan of a GRU's cell."""
    import equinox as eqx

    arrays, static = eqx.partition(eqx.nn.GRUCell(inputs, hidden, key=jax.random.PRNGKey(0)), eqx.is_array)

    def loss(arrays: Any, xs: Any) -> Any:
        cell = eqx.combine(arrays, static)
        last, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(hidden, xs.dtype), xs)
        return jnp.mean(last**2)

    return jax.grad(loss), (_drawn(arrays), normal(1, steps, inputs))


def unrolled(steps: int = 32, batch: int = 8, inputs: int = 16, hidden: int = 32) -> Made:
    """Haiku: the gradient of an LSTM over a batch of sequences."""
    import haiku as hk

    def last(xs: Any) -> Any:
        core = hk.LSTM(hidden)
        return hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0][-1]

    net = hk.without_apply_rng(hk.transform(last))
    params = net.init(jax.random.PRNGKey(0), np.zeros((steps, batch, inputs), np.float32))
    return jax.grad(lambda p, xs: jnp.mean(net.apply(p, xs) ** 2)), (_drawn(params), normal(2, steps, batch, inputs))


def schools(steps: int = 10) -> Made:
    """NumPyro: steps of a sampler for eight schools, by the gradient of the model's log density."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    def model(errors: Any, heights: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        spread = numpyro.sample("spread", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            offset = numpyro.sample("offset", dist.Normal(0, 1))
            numpyro.sample("height", dist.Normal(mean + spread * offset, errors), obs=heights)

    def run(place: Any, speed: Any, errors: Any, heights: Any) -> Any:
        slope = jax.grad(lambda at: log_density(model, (errors, heights), {}, at)[0])

        def step(carry: Any, _: Any) -> Any:
            at, v = carry
            v = jax.tree_util.tree_map(lambda v, g: v + 0.02 * g, v, slope(at))
            at = jax.tree_util.tree_map(lambda a, v: a + 0.04 * v, at, v)
            return (at, jax.tree_util.tree_map(lambda v, g: v + 0.02 * g, v, slope(at))), None

        return jax.lax.scan(step, (place, speed), None, length=steps)[0]

    place = {"mean": np.array(0.3), "spread": np.array(1.2), "offset": np.linspace(-1.0, 1.0, 8)}
    speed = {"mean": np.array(0.1), "spread": np.array(-0.2), "offset": normal(3, 8)}
    errors = np.array([1.5, 1.0, 1.6, 1.1, 0.9, 1.1, 1.0, 1.8])
    return run, (place, speed, errors, np.array([2.8, 0.8, -0.3, 0.7, -0.1, 0.1, 1.8, 1.2]))


def branched(steps: int = 80) -> Made:
    """Jaxley: the gradient of a branched neuron's voltages by the radii of its compartments."""
    import jaxley as jx
    from jaxley.channels import HH

    time = {"delta_t": 0.025, "t_max": 0.025 * steps}
    cell = jx.Cell([jx.Branch(jx.Compartment(), ncomp=2)] * 5, parents=[-1, 0, 0, 1, 1])
    cell.insert(HH())
    tip = cell.branch(0).comp(0)
    tip.stimulate(jx.step_current(i_delay=0.5, i_dur=1.0, i_amp=0.1, **time), verbose=False)
    tip.record(verbose=False)
    cell.make_trainable("radius", verbose=False)
    params = jax.tree_util.tree_map(np.asarray, cell.get_parameters())
    return jax.grad(lambda p: jnp.mean(jx.integrate(cell, params=p, **time) ** 2)), (params,)


def pole(steps: int = 10) -> Made:
    """Brax: steps of an inverted pendulum by its spring backend."""
    from brax import envs

    env = envs.get_environment("inverted_pendulum", backend="spring")

    def run(place: Any, speed: Any, pushes: Any) -> Any:
        def step(state: Any, push: Any) -> Any:
            state = env.pipeline_step(state, push)
            return state, (state.q, state.qd)

        return jax.lax.scan(step, env.pipeline_init(place, speed), pushes)[1]

    return run, (np.array([0.0, 0.1]), np.zeros(2), normal(4, steps, 1))


def _drawn(params: Any) -> Any:
    """Parameters of such shapes from NumPy, the same in every precision."""
    leaves, tree = jax.tree_util.tree_flatten(params)
    found = [normal(k, *leaf.shape, scale=0.2) for k, leaf in enumerate(leaves)]
    return jax.tree_util.tree_unflatten(tree, found)


PROGRAMS = (
    Program("diffrax_adaptive", "diffrax", predators),
    Program("diffrax_gradient", "diffrax", fitted),
    Program("equinox_gru_gradient", "equinox", gated_cell),
    Program("haiku_lstm_gradient", "haiku", unrolled),
    Program("numpyro_leapfrog", "numpyro", schools),
    Program("jaxley_gradient", "jaxley", branched),
    Program("brax_spring", "brax", pole),
)
"""``like`` is the package that a program imports."""

DISTRIBUTIONS = ("diffrax", "equinox", "dm-haiku", "numpyro", "jaxley", "brax")
"""What pip calls the packages."""

OLD_DISTRIBUTIONS = (
    "diffrax",
    "equinox",
    "dm-haiku==0.0.13",
    "numpyro",
    "jaxley",
    "brax==0.10.5",
    "mujoco==3.2.3",
    "mujoco-mjx==3.2.3",
)
"""Those that run with the old jax."""


def installed() -> tuple[str, ...]:
    """The names of the programs whose packages are here."""
    return tuple(p.name for p in PROGRAMS if find_spec(p.like) is not None)
