"""Programs on public libraries, as their users write them: what ``first_minute`` runs beside the workloads.

One whose library is not installed is left out, and said to be.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.made import Made, Program, normal
from bench.small.packages import gated_cell, pole, predators, unrolled


def flax_cnn() -> Made:
    """Flax: a step of stochastic gradient descent of a small convolutional net."""
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for features in (16, 32):
                x = nn.avg_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
            return nn.Dense(10)(x)

    return _descent(Net(), _images(28, 1))


def flax_mixer() -> Made:
    """Flax: a step of an MLP-Mixer of four blocks."""
    from flax import linen as nn

    class Perceptron(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(self.width)(x)))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(64, (4, 4), strides=(4, 4))(x)
            x = x.reshape(x.shape[0], -1, x.shape[-1])
            for _ in range(4):
                x = x + jnp.swapaxes(Perceptron(32)(jnp.swapaxes(nn.LayerNorm()(x), 1, 2)), 1, 2)
                x = x + Perceptron(128)(nn.LayerNorm()(x))
            return nn.Dense(10)(nn.LayerNorm()(x).mean(1))

    return _descent(Net(), _images(32, 3))


def flax_groups() -> Made:
    """Flax: a step through convolutions with group normalisation, on small images."""
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(3):
                x = nn.silu(nn.GroupNorm(4)(nn.Conv(16, (3, 3))(x)))
            return nn.Dense(10)(x.mean((1, 2)))

    return _descent(Net(), _images(16, 3))


def adamw() -> Made:
    """Optax: AdamW for twelve arrays."""
    import optax

    return _updated(optax.adamw(1e-3))


def adafactor() -> Made:
    """Optax: Adafactor for twelve arrays."""
    import optax

    return _updated(optax.adafactor(1e-3))


def lamb() -> Made:
    """Optax: LAMB for twelve arrays."""
    import optax

    return _updated(optax.lamb(1e-3))


def haiku_transformer() -> Made:
    """Haiku: the gradient of two blocks of a Transformer, over a batch of token sequences."""
    import haiku as hk

    def loss(tokens: Any) -> Any:
        x = hk.Embed(256, 64)(tokens)
        for _ in range(2):
            y = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(4, 16, w_init=hk.initializers.VarianceScaling(1.0), model_size=64)(y, y, y)
            x = x + hk.Linear(64)(jax.nn.gelu(hk.Linear(256)(hk.LayerNorm(-1, True, True)(x))))
        scores = jax.nn.log_softmax(hk.Linear(256)(hk.LayerNorm(-1, True, True)(x)))
        return -jnp.take_along_axis(scores[:, :-1], tokens[:, 1:, None], 2).mean()

    net = hk.without_apply_rng(hk.transform(loss))
    tokens = np.random.default_rng(0).integers(0, 256, (8, 64))
    return jax.value_and_grad(net.apply), (net.init(jax.random.PRNGKey(0), tokens), tokens)


def diffrax_neural_ode() -> Made:
    """diffrax and Equinox: the gradient of a fit of a neural ODE to eight short paths."""
    import diffrax
    import equinox as eqx

    arrays, static = eqx.partition(eqx.nn.MLP(2, 2, 32, 2, key=jax.random.PRNGKey(0)), eqx.is_array)
    times = jnp.linspace(0.0, 2.0, 16)

    def loss(arrays: Any, starts: Any, paths: Any) -> Any:
        flow = eqx.combine(arrays, static)
        term = diffrax.ODETerm(lambda t, y, _: flow(y))

        def solve(start: Any) -> Any:
            given: dict[str, Any] = {"t0": 0.0, "t1": 2.0, "dt0": 0.1, "y0": start}
            given["stepsize_controller"] = diffrax.PIDController(rtol=1e-3, atol=1e-6)
            return diffrax.diffeqsolve(term, diffrax.Tsit5(), **given, saveat=diffrax.SaveAt(ts=times)).ys

        return jnp.mean((jax.vmap(solve)(starts) - paths) ** 2)

    return jax.value_and_grad(loss), (arrays, normal(0, 8, 2), normal(1, 8, 16, 2))


def gymnax_ppo() -> Made:
    """gymnax: steps of 64 Cart-poles by a policy's network, and one update of it by proximal policy optimisation."""
    import gymnax
    import optax

    env, settings = gymnax.make("CartPole-v1")
    descent = optax.adam(3e-4)

    def network(params: Any, seen: Any) -> tuple[Any, Any]:
        for w, b in params[:-1]:
            seen = jnp.tanh(seen @ w + b)
        out = seen @ params[-1][0] + params[-1][1]
        return jax.nn.log_softmax(out[..., :2]), out[..., 2]

    def loss(params: Any, steps: Any, gains: Any, wanted: Any) -> Any:
        seen, action, before = steps
        scores, value = network(params, seen)
        chosen = jnp.take_along_axis(scores, action[..., None], -1)[..., 0]
        ratio = jnp.exp(chosen - before)
        gain = jnp.minimum(ratio * gains, jnp.clip(ratio, 0.8, 1.2) * gains).mean()
        return ((value - wanted) ** 2).mean() * 0.5 - gain + 0.01 * (jnp.exp(scores) * scores).sum(-1).mean()

    def update(params: Any, state: Any, key: Any) -> Any:
        key, start = jax.random.split(key)
        seen, states = jax.vmap(env.reset, (0, None))(jax.random.split(start, 64), settings)

        def step(carry: Any, key: Any) -> Any:
            seen, states = carry
            scores, value = network(params, seen)
            action = jax.random.categorical(key, scores)
            chosen = jnp.take_along_axis(scores, action[:, None], 1)[:, 0]
            next_seen, states, reward, done, *_ = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key, 64), states, action, settings
            )
            return (next_seen, states), (seen, action, chosen, value, reward, jnp.asarray(done, jnp.float32))

        _, (seen, action, chosen, value, reward, done) = jax.lax.scan(step, (seen, states), jax.random.split(key, 32))

        def back(gain: Any, at: Any) -> Any:
            reward, done, value, after = at
            gain = reward + 0.99 * (1 - done) * after - value + 0.99 * 0.95 * (1 - done) * gain
            return gain, gain

        after = jnp.concatenate([value[1:], value[-1:]])
        _, gains = jax.lax.scan(back, jnp.zeros(64), (reward, done, value, after), reverse=True)
        slope = jax.grad(loss)(params, (seen, action, chosen), gains, gains + value)
        change, state = descent.update(slope, state, params)
        return optax.apply_updates(params, change), state

    params = [(normal(k, m, n, scale=0.3), np.zeros(n)) for k, (m, n) in enumerate([(4, 64), (64, 64), (64, 3)])]
    params = jax.tree_util.tree_map(lambda a: a.astype(np.float32), params)
    return update, (params, descent.init(params), jax.random.PRNGKey(0))


def numpyro_nuts() -> Made:
    """NumPyro: ten draws of the no-U-turn sampler for a logistic regression."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    x = normal(0, 100, 4).astype(np.float32)
    y = (x @ np.array([1.0, -1.0, 0.5, 0.0], np.float32) > 0).astype(np.float32)
    sampler = NUTS(model, max_tree_depth=5)
    state = sampler.init(jax.random.PRNGKey(0), 10, None, (x, y), {})

    def draws(state: Any, x: Any, y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = sampler.sample(state, (x, y), {})
            return state, state.z["w"]

        return jax.lax.scan(step, state, None, 10)[1]

    return draws, (state, x, y)


def blackjax_hmc() -> Made:
    """blackjax: fifty draws of Hamiltonian Monte Carlo for a linear regression."""
    import blackjax

    def draws(key: Any, start: Any, x: Any, y: Any) -> Any:
        def density(at: Any) -> Any:
            spread = jnp.exp(at["log_spread"])
            return -(((y - x @ at["w"]) / spread) ** 2).sum() / 2 - len(y) * at["log_spread"] - (at["w"] ** 2).sum() / 2

        sampler = blackjax.hmc(density, step_size=0.02, inverse_mass_matrix=jnp.ones(5), num_integration_steps=10)

        def step(state: Any, key: Any) -> Any:
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, sampler.init(start), jax.random.split(key, 50))[1]

    start = {"w": np.zeros(4, np.float32), "log_spread": np.zeros((), np.float32)}
    return draws, (jax.random.PRNGKey(0), start, normal(1, 64, 4), normal(2, 64))


def distrax_mixture() -> Made:
    """distrax: the gradient of a mixture of Gaussians' log likelihood."""
    import distrax

    def loss(weights: Any, places: Any, spreads: Any, x: Any) -> Any:
        parts = distrax.MultivariateNormalDiag(places, jnp.exp(spreads))
        return -distrax.MixtureSameFamily(distrax.Categorical(weights), parts).log_prob(x).mean()

    given = (np.zeros(8), normal(0, 8, 4), np.zeros((8, 4)), normal(1, 1024, 4))
    return jax.value_and_grad(loss, (0, 1, 2)), given


def _images(side: int, channels: int, batch: int = 32) -> tuple[Any, Any]:
    labels = np.random.default_rng(1).integers(0, 10, batch)
    return normal(0, batch, side, side, channels).astype(np.float32), labels


def _descent(net: Any, data: tuple[Any, Any]) -> Made:
    """A step of Adam for a net of Flax that tells ten classes."""
    import optax

    descent = optax.adam(1e-3)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), labels).mean()

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        found, slope = jax.value_and_grad(loss)(params, x, labels)
        change, state = descent.update(slope, state, params)
        return optax.apply_updates(params, change), state, found

    params = net.init(jax.random.PRNGKey(0), data[0])
    return step, (params, descent.init(params), *data)


def _updated(descent: Any) -> Made:
    """One update of twelve arrays, six matrices and their biases."""
    import optax

    sizes = [(128, 256), (256,)] * 6
    params, slope = ([normal(2 * k + j, *dims).astype(np.float32) for k, dims in enumerate(sizes)] for j in (0, 1))

    def update(slope: Any, state: Any, params: Any) -> Any:
        change, state = descent.update(slope, state, params)
        return optax.apply_updates(params, change), state

    return update, (slope, descent.init(params), params)


PROGRAMS = (
    Program("flax_cnn", "flax", flax_cnn),
    Program("flax_mixer", "flax", flax_mixer),
    Program("flax_groups", "flax", flax_groups),
    Program("optax_adamw", "optax", adamw),
    Program("optax_adafactor", "optax", adafactor),
    Program("optax_lamb", "optax", lamb),
    Program("equinox_gru", "equinox", gated_cell),
    Program("haiku_lstm", "haiku", unrolled),
    Program("haiku_transformer", "haiku", haiku_transformer),
    Program("diffrax_ode", "diffrax", predators),
    Program("diffrax_neural_ode", "diffrax", diffrax_neural_ode),
    Program("gymnax_ppo", "gymnax", gymnax_ppo),
    Program("numpyro_nuts", "numpyro", numpyro_nuts),
    Program("blackjax_hmc", "blackjax", blackjax_hmc),
    Program("brax_step", "brax", pole),
    Program("distrax_mixture", "distrax", distrax_mixture),
)
"""``like`` is the library that a program imports."""

DISTRIBUTIONS = "flax optax equinox dm-haiku diffrax gymnax numpyro blackjax brax distrax"
"""What pip calls the libraries."""


def missing() -> tuple[str, ...]:
    """The names of the programs whose libraries are not here."""
    return tuple(p.name for p in PROGRAMS if find_spec(p.like) is None)


def made(name: str) -> Made:
    """A program's function, and its arguments on the device, floats in float32."""
    (program,) = (p for p in PROGRAMS if p.name == name)
    fun, args = program.make()
    return fun, jax.tree_util.tree_map(jnp.asarray, args)
