"""Images resized beside loops had plans that could not run; some operations were refused, or raised when they ran."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tests.neighbours.sorts import Program, floats, integers


def beside_a_loop(shape: tuple[int, ...], method: str, both: bool = True) -> Any:
    """An image in another size, beside loops over its rows, which may read it or not."""

    def run(x: jax.Array) -> Any:
        resized = jax.image.resize(x, shape, method)

        def step(carry: jax.Array, row: jax.Array) -> Any:
            carry = jnp.tanh(carry + row)
            return carry, carry * 2

        rows = resized if both else x
        final, every = jax.vmap(lambda r: lax.scan(step, r[0], r))(rows.reshape(rows.shape[0], -1))
        return final.sum(), every, resized * 2

    return run


RESIZED: dict[str, Program] = {
    "larger": (beside_a_loop((8, 8), "linear"), (floats(4, 4),)),
    "larger, the loop beside": (beside_a_loop((8, 8), "linear", both=False), (floats(4, 4),)),
    "smaller": (beside_a_loop((3, 5), "linear"), (floats(9, 10),)),
    "nearest": (beside_a_loop((7, 9), "nearest"), (floats(4, 4),)),
    "nearest, the loop beside": (beside_a_loop((7, 9), "nearest", both=False), (floats(4, 4),)),
    "cubic": (beside_a_loop((6, 6), "cubic"), (floats(4, 5),)),
    "lanczos": (beside_a_loop((6, 6), "lanczos3", both=False), (floats(4, 5),)),
    "with channels": (beside_a_loop((6, 6, 3), "linear"), (floats(4, 4, 3),)),
    "one axis": (beside_a_loop((4, 16), "linear"), (floats(4, 4),)),
    "same size": (beside_a_loop((4, 4), "linear"), (floats(4, 4),)),
    "odd sizes": (beside_a_loop((31, 33), "linear", both=False), (floats(17, 5),)),
    "halves": (beside_a_loop((8, 8), "linear"), (floats(4, 4, dtype=np.float16),)),
    "its gradient": (
        jax.grad(lambda x: jnp.sum(beside_a_loop((6, 6), "linear")(x)[1] ** 2)),
        (floats(3, 3),),
    ),
}


def convolved(x: Any, w: Any, out: Any) -> Any:
    dims = lax.conv_dimension_numbers(x.shape, w.shape, ("NCH", "OIH", "NCH"))
    return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=dims, preferred_element_type=out) * 2


REFUSED: dict[str, Program] = {
    "high half of a product": (
        lambda a, b: lax.mulhi(a, b) + 1,
        (integers(40, below=2**31 - 1), integers(40, below=2**31 - 1)[::-1].copy()),
    ),
    "high half, unsigned": (
        lambda a, b: lax.mulhi(a, b) + np.uint32(1),
        (integers(33, below=2**31 - 1, dtype=np.uint32), integers(33, below=2**31 - 1, dtype=np.uint32)),
    ),
    "a number everywhere": (lambda x: lax.broadcast(x, (3, 5)) + 1, (np.float32(2.0),)),
    "a row everywhere": (lambda x: lax.broadcast(x, (3,)) * 2, (floats(5),)),
    "convolution of halves": (
        lambda x, w: convolved(x, w, np.float32),
        (floats(2, 3, 9, dtype=np.float16), floats(4, 3, 3, dtype=np.float16)),
    ),
    "convolution of brain halves": (
        lambda x, w: convolved(x, w, np.float32),
        (floats(2, 3, 9).astype(ml_dtypes.bfloat16), floats(4, 3, 3).astype(ml_dtypes.bfloat16)),
    ),
    "convolution of bytes": (
        lambda x, w: convolved(x, w, np.int32),
        (integers(2, 3, 9, dtype=np.int8), integers(4, 3, 3, dtype=np.int8)),
    ),
    "hyperbolic sine": (lambda x: jnp.sinh(x) * 2, (floats(65),)),
    "hyperbolic cosine": (lambda x: jnp.cosh(x) * 2, (floats(65),)),
    "its inverse": (lambda x: jnp.arccosh(1 + x * x) * 2, (floats(65),)),
    "inverse hyperbolic sine": (lambda x: jnp.arcsinh(x).sum(-1), (floats(6, 33),)),
    "inverse hyperbolic tangent": (lambda x: jnp.arctanh(jnp.tanh(x)) * 2, (floats(65),)),
    "inverse sine": (lambda x: jnp.arcsin(jnp.sin(x)) * 2, (floats(65),)),
    "inverse cosine, halves": (lambda x: jnp.arccos(jnp.cos(x)) * 2, (floats(65, dtype=np.float16),)),
    "tangent and cube root": (lambda x: jnp.tan(x) + jnp.cbrt(x), (floats(31),)),
    "bits": (lambda x: lax.population_count(x) + lax.clz(x), (integers(31, below=1 << 20),)),
}
