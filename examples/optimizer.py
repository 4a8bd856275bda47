"""AdamW with clipping by the global norm over 200 parameters of many shapes: hundreds of launches become two or three.

python examples/optimizer.py
"""

from __future__ import annotations

import argparse
import inspect

import jax
import jax.numpy as jnp

from jax_stitch import compare, stitch_jit

Tensors = list[jax.Array]


@stitch_jit
def update(params: Tensors, first: Tensors, second: Tensors, gradients: Tensors) -> tuple[Tensors, Tensors, Tensors]:
    """One step: gradients scaled to a norm of at most 1, both moments, decoupled weight decay."""
    norm = jnp.sqrt(sum((jnp.square(g).sum() for g in gradients), jnp.float32(0)))
    gradients = [g / jnp.maximum(norm, 1.0) for g in gradients]
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
    step = [m / (jnp.sqrt(v) + 1e-8) for m, v in zip(first, second, strict=True)]
    return [p - 1e-3 * (s + 0.01 * p) for p, s in zip(params, step, strict=True)], first, second


def main(tensors: int = 200, features: int = 256, seconds: float = 2.0) -> None:
    """Makes parameters as of a Transformer, steps a few times, then times a step."""
    shapes = [(features, features), (features,), (features, 4 * features), (4 * features,)]
    keys = jax.random.split(jax.random.key(0), tensors)
    params = [jax.random.normal(keys[n], shapes[n % 4]) for n in range(tensors)]
    first, second = [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params]
    for _ in range(5):
        params, first, second = update(params, first, second, params)  # the gradient of half of the squares
    print(
        f"{sum(p.size for p in params):,} numbers in {tensors} tensors, mean square {jnp.square(params[0]).mean():.3f}"
    )
    print(compare(update, params, first, second, params, seconds=seconds))
    plan = update.plan(params, first, second, params, device="h200")
    print(f"on an H200 (planned): {plan.xla_launches} launches under jax.jit, {plan.launches} stitched")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in inspect.signature(main).parameters.items():
        if name != "seconds":
            parser.add_argument(name, nargs="?", type=int, default=size.default, help="default: %(default)s")
    main(**vars(parser.parse_args()))
