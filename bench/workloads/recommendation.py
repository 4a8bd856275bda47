"""Recommenders: DIEN (interests that evolve, by a GRU with attention), and several interests by routing of capsules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, filled, integers
from bench.workloads.training import cross_entropy, mid_training, training_step
from jax_stitch.demo.adam import adam_epsilon

Made = tuple[Function, tuple[Any, ...]]
Shapes = dict[str, jax.ShapeDtypeStruct]


def _dense(inputs: int, outputs: int) -> Shapes:
    return {
        "kernel": jax.ShapeDtypeStruct((inputs, outputs), jnp.float32),
        "bias": jax.ShapeDtypeStruct((outputs,), jnp.float32),
    }


def _apply(params: Any, x: jax.Array) -> jax.Array:
    return x @ params["kernel"] + params["bias"]


def gru_cell(params: Any, h: jax.Array, x: jax.Array, attention: jax.Array | None = None) -> jax.Array:
    """The next state [batch, hidden]; with ``attention`` [batch], DIEN's AUGRU: it scales the update gate."""
    reset, update = jnp.split(jax.nn.sigmoid(_apply(params["gates"], jnp.concatenate([x, h], -1))), 2, -1)
    new = jnp.tanh(_apply(params["new"], jnp.concatenate([x, reset * h], -1)))
    if attention is not None:
        update = update * attention[:, None]
    return (1 - update) * h + update * new


def _gru_shapes(inputs: int, hidden: int) -> dict[str, Shapes]:
    return {"gates": _dense(inputs + hidden, 2 * hidden), "new": _dense(inputs + hidden, hidden)}


def dice(params: Any, x: jax.Array) -> jax.Array:
    """DIN's activation: a leaky unit that is switched at the batch's mean."""
    centred = x - x.mean(0)
    chance = jax.nn.sigmoid(centred * jax.lax.rsqrt(jnp.square(centred).mean(0) + 1e-8))
    return chance * x + params["alpha"] * (1 - chance) * x


def dien(params: Any, target: Any, history: Any, present: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits [batch, 2], and the states [time, batch, hidden] of the interest extractor.

    ``target`` and ``history`` are pairs (items, categories) of [batch] and [batch, time]; ``present`` [batch, time] is
    1 before each history's end and 0 after.
    """

    def embedded(pair: Any) -> jax.Array:
        return jnp.concatenate([params[name][ids] for name, ids in zip(("items", "kinds"), pair, strict=True)], -1)

    wanted, behaviour = embedded(target), embedded(history).transpose(1, 0, 2)
    mask = present.T
    zero = jnp.zeros((wanted.shape[0], params["attention"]["kernel"].shape[0]), wanted.dtype)

    def extract(h: jax.Array, x: Any) -> tuple[jax.Array, jax.Array]:
        x, here = x
        h = jnp.where(here[:, None] > 0, gru_cell(params["extract"], h, x), h)
        return h, h

    _, states = jax.lax.scan(extract, zero, (behaviour, mask))
    scores = jnp.einsum("tbh,hw,bw->tb", states, params["attention"]["kernel"], wanted)
    weights = jax.nn.softmax(jnp.where(mask > 0, scores, -1e9), axis=0)

    def evolve(h: jax.Array, x: Any) -> tuple[jax.Array, None]:
        x, weight, here = x
        return jnp.where(here[:, None] > 0, gru_cell(params["evolve"], h, x, weight), h), None

    interest, _ = jax.lax.scan(evolve, zero, (states, weights, mask))
    pooled = (behaviour * mask[..., None]).sum(0)
    x = jnp.concatenate([wanted, pooled, wanted * pooled, interest], -1)
    for layer in params["top"]:
        x = dice(layer, _apply(layer, x))
    return _apply(params["out"], x), states


def dien_loss(params: Any, target: Any, history: Any, absent: Any, present: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross entropy of the click, and the auxiliary loss, which tells each next behaviour from one not taken."""
    logits, states = dien(params, target, history, present)

    def chance(pair: Any) -> jax.Array:
        parts = [params[name][ids[:, 1:]] for name, ids in zip(("items", "kinds"), pair, strict=True)]
        x = jnp.concatenate([states[:-1].transpose(1, 0, 2), *parts], -1)
        return _apply(params["auxiliary"][1], jax.nn.sigmoid(_apply(params["auxiliary"][0], x)))[..., 0]

    mask = present[:, 1:]
    auxiliary = (jax.nn.softplus(-chance(history)) + jax.nn.softplus(chance(absent))) * mask
    return cross_entropy(logits, labels) + auxiliary.sum() / mask.sum()


def _dien_shapes(size: Size) -> Any:
    _, _, items, kinds, width, hidden = size
    behaviour = 2 * width
    inputs = 3 * behaviour + hidden
    return {
        "items": jax.ShapeDtypeStruct((items, width), jnp.float32),
        "kinds": jax.ShapeDtypeStruct((kinds, width), jnp.float32),
        "extract": _gru_shapes(behaviour, hidden),
        "evolve": _gru_shapes(hidden, hidden),
        "attention": {"kernel": jax.ShapeDtypeStruct((hidden, behaviour), jnp.float32)},
        "auxiliary": [_dense(hidden + behaviour, 100), _dense(100, 1)],
        "top": [
            {**_dense(inputs, 200), "alpha": jax.ShapeDtypeStruct((200,), jnp.float32)},
            {**_dense(200, 80), "alpha": jax.ShapeDtypeStruct((80,), jnp.float32)},
        ],
        "out": _dense(80, 2),
    }


def _dien_inputs(size: Size, dtype: DTypeLike) -> tuple[Any, Any, Any, jax.Array]:
    batch, time, items, kinds, _, _ = size

    def pair(seed: int, shape: Size) -> tuple[jax.Array, jax.Array]:
        return integers(seed, shape, items), integers(seed + 1, shape, kinds)

    lengths = time // 2 + 1 + integers(96, (batch,), time // 2)
    present = (jnp.arange(time)[None, :] < lengths[:, None]).astype(dtype)
    return pair(90, (batch,)), pair(92, (batch, time)), pair(94, (batch, time)), present


def dien_training(size: Size, dtype: DTypeLike) -> Made:
    """One step with Adam; ``size`` is (batch, time, items, kinds, width, hidden)."""
    params, inputs = filled(_dien_shapes(size), dtype), _dien_inputs(size, dtype)
    optimizer = optax.adam(1e-3, eps=adam_epsilon(dtype))
    step = training_step(dien_loss, optimizer, "dien_training")
    return step, (params, mid_training(optimizer, params), *inputs, integers(97, size[:1], 2))


def dien_inference(size: Size, dtype: DTypeLike) -> Made:
    """Chances of a click [batch]; ``size`` as for training."""

    def dien_inference(params: Any, target: Any, history: Any, present: jax.Array) -> jax.Array:
        return jax.nn.softmax(dien(params, target, history, present)[0])[:, 0]

    target, history, _, present = _dien_inputs(size, dtype)
    return dien_inference, (filled(_dien_shapes(size), dtype), target, history, present)


def squash(x: jax.Array) -> jax.Array:
    """Vectors with their lengths mapped to less than 1."""
    square = jnp.square(x).sum(-1, keepdims=True)
    return x * square / (1 + square) * jax.lax.rsqrt(square + 1e-9)


def interests(params: Any, history: jax.Array, present: jax.Array, rounds: int = 3) -> jax.Array:
    """Capsules [batch, capsules, width] by dynamic routing of ``history`` [batch, time] of items (MIND)."""
    low = params["items"][history] @ params["bilinear"]
    route = jnp.broadcast_to(params["route"], (history.shape[0], *params["route"].shape))
    capsules = jnp.zeros((), low.dtype)
    for _ in range(rounds):
        weights = jax.nn.softmax(route, axis=1) * present[:, None, :]
        capsules = squash(jnp.einsum("bkt,btw->bkw", weights, low))
        route = route + jnp.einsum("bkw,btw->bkt", capsules, low)
    return jax.nn.relu(_apply(params["hidden"], capsules))


def multi_interest_loss(
    params: Any, history: jax.Array, present: jax.Array, target: jax.Array, sampled: jax.Array
) -> jax.Array:
    """Sampled softmax after label-aware attention; ``target`` is [batch], ``sampled`` [batch, others]."""
    capsules, wanted = interests(params, history, present), params["items"][target]
    weights = jax.nn.softmax(jnp.square(jnp.einsum("bkw,bw->bk", capsules, wanted)))
    user = jnp.einsum("bk,bkw->bw", weights, capsules)
    true = (user * wanted).sum(-1, keepdims=True)
    others = jnp.einsum("bw,bnw->bn", user, params["items"][sampled])
    return cross_entropy(jnp.concatenate([true, others], -1), jnp.zeros(user.shape[0], jnp.int32))


def multi_interest(size: Size, dtype: DTypeLike) -> Made:
    """One training step; ``size`` is (batch, time, items, width, capsules, others)."""
    batch, time, items, width, capsules, others = size
    shapes = {
        "items": jax.ShapeDtypeStruct((items, width), jnp.float32),
        "bilinear": jax.ShapeDtypeStruct((width, width), jnp.float32),
        "route": jax.ShapeDtypeStruct((capsules, time), jnp.float32),
        "hidden": _dense(width, width),
    }
    params = filled(shapes, dtype)
    optimizer = optax.adam(1e-3, eps=adam_epsilon(dtype))
    history, target = integers(90, (batch, time), items), integers(91, (batch,), items)
    present = (jnp.arange(time)[None, :] <= integers(92, (batch,), time)[:, None]).astype(dtype)
    step = training_step(multi_interest_loss, optimizer, "multi_interest")
    sampled = integers(93, (batch, others), items)
    return step, (params, mid_training(optimizer, params), history, present, target, sampled)


SMALL = ((8, 8, 64, 16, 8, 16), (7, 5, 61, 13, 5, 11))
AMAZON = (256, 100, 367983, 1601, 18, 36)  # the public Amazon books data, as DIEN's authors train on it

WORKLOADS = (
    Workload("dien_training", "recommendation", dien_training, (128, 50, 20000, 400, 18, 36), SMALL, paper_size=AMAZON),
    Workload(
        "dien_inference", "recommendation", dien_inference, (256, 100, 20000, 400, 18, 36), SMALL, paper_size=AMAZON
    ),
    Workload(
        "multi_interest",
        "recommendation",
        multi_interest,
        (128, 20, 20000, 64, 4, 10),
        ((8, 8, 64, 16, 4, 4), (7, 5, 61, 13, 3, 5)),
        paper_size=(256, 50, 367983, 64, 4, 10),
    ),
)
