"""``python -m bench.gpu.compositions``: each way in which parts of a kernel meet, in a process of its own.

The first, ``tiny``, is one kernel of one block: whether anything can be launched at all.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bench.gpu import pool
from bench.worker import Tell
from jax_stitch import stitch_jit
from jax_stitch.inspect.report.accuracy import agreement, reference

CALLS = 5
"""Of each program: an arrival counter that is not back at zero, or a race, shows at the second at the latest."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A function, the shapes of its arguments, and what its kernel should be made of on a GPU; empty: of anything."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    wanted: str


def _layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def _normalised_steps(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 8, lambda _, c: c / jnp.sqrt((c * c).sum()) + x, x)


COMPOSITIONS: dict[str, Composition] = {
    "tiny": Composition(lambda x: x - x.mean(), ((256,),), ""),
    "thread": Composition(lambda x: jax.lax.fori_loop(0, 50, lambda _, c: jnp.sin(c) + x, x), ((4096,),), "thread"),
    "warp": Composition(lambda x: jax.nn.softmax(x, 1) * 2, ((2048, 96),), "warp"),
    "block": Composition(lambda x: jnp.cumsum(jax.nn.softmax(x, 1), 1), ((512, 3000),), "block"),
    "packing": Composition(lambda a, b: (a * 2 + 1, jnp.tanh(b) * 3 - b), ((1000,), (777,)), "packing"),
    "sort": Composition(lambda x: jnp.sort(x, 1) * 2, ((512, 777),), "block"),
    "last-arriving block": Composition(
        lambda x, scale, g: jax.vjp(_layer_norm, x, scale)[1](g), ((2048, 512), (512,), (2048, 512)), "grid"
    ),
    "whole array": Composition(lambda x: (x - x.mean()) / x.std(), ((1024, 1024),), "grid"),
    "cluster": Composition(lambda x: jax.nn.softmax(x, 1), ((64, 100_000),), "cluster"),
    "loop in one block": Composition(_normalised_steps, ((4096,),), "block"),
    "loop over products": Composition(
        lambda x, w: jax.lax.fori_loop(0, 8, lambda _, c: jnp.tanh(c @ w) + x, x), ((16, 64), (64, 64)), "block"
    ),
    "loop around kernels": Composition(_normalised_steps, ((1 << 18,),), "grid"),
}


def answer(values: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """The verdict on one of them: the worker's side."""
    chosen = COMPOSITIONS[values["name"]]
    keys = jax.random.split(jax.random.key(7), len(chosen.shapes))
    args = tuple(jax.random.normal(key, shape) * 0.1 for key, shape in zip(keys, chosen.shapes, strict=True))
    tell("planning")
    plan = stitch_jit(chosen.function).plan(*args)
    made = sorted({word for kernel in plan.kernels for word in kernel.composition})
    if not plan.kernels or chosen.wanted not in ("", *made):
        planned = "+".join(made) or "left to XLA"
        return {"verdict": "not here", "told": f"planned as {planned} on {plan.device.name}"}
    tell("compiling with jax.jit")
    plain = jax.block_until_ready(jax.jit(chosen.function)(*args))
    exact = reference(chosen.function, args)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tell("compiling")
        stitched = stitch_jit(chosen.function).lower(*args).compile()
        for call in range(CALLS):
            tell(f"in call {call + 1}")
            results = jax.block_until_ready(stitched(*args))
            if wrong := [str(leaf) for leaf in agreement(results, plain, exact) if not leaf.agrees]:
                return {"verdict": "WRONG", "told": f"call {call + 1}: {wrong[0]}"}
    kernel = plan.kernels[0]
    return {"verdict": "well", "told": f"{'+'.join(kernel.composition)}, {kernel.launch}"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs them; the exit status is that of ``bench.gpu.pool``."""
    return pool.command("bench.gpu.compositions", __doc__, tuple(COMPOSITIONS), argv)


if __name__ == "__main__":
    sys.exit(main())
