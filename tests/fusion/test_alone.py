"""On a CPU, where no patterns share a launch, a piece that does the work of one XLA kernel is left to XLA."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit

TABLE = (30_000, 64)


def update(tables: list[jax.Array], rows: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """A step of gradient descent on look-ups: XLA scatters into zeros, and adds the table where the sum lies."""

    def loss(tables: list[jax.Array]) -> jax.Array:
        first, second = (t[rows] for t in tables)
        return (jax.nn.softmax(first * second, axis=-1) * scale).sum()

    return [t - 0.1 * g for t, g in zip(tables, jax.grad(loss)(tables), strict=True)]


ARGUMENTS = (
    [jax.ShapeDtypeStruct(TABLE, jnp.float32)] * 2,
    jax.ShapeDtypeStruct((128,), jnp.int32),
    jax.ShapeDtypeStruct((64,), jnp.float32),
)


def moments(params: list[jax.Array], moments: list[jax.Array], grads: list[jax.Array]) -> list[jax.Array]:
    """For each tensor the work of two kernels of XLA: the moment and the parameter."""
    kept = [0.9 * m + 0.1 * jnp.square(g) for m, g in zip(moments, grads, strict=True)]
    return [p - 0.1 * g * jax.lax.rsqrt(m) for p, g, m in zip(params, grads, kept, strict=True)] + kept


def test_tables_are_updated_where_their_gradients_lie() -> None:
    """No kernel of ours makes another array of a table's size; what was gathered and reduced is still stitched."""
    f = stitch_jit(update)
    plan = f.plan(*ARGUMENTS)
    assert plan.kernels
    size = 4 * TABLE[0] * TABLE[1]
    program = f.lower(*ARGUMENTS).compile()
    shape = re.escape(f"f32[{TABLE[0]},{TABLE[1]}]")
    assert not re.search(rf"= [^=]*{shape}[^=]* custom-call\(", program.as_text()), "a table in new memory"
    ours, theirs = program.memory_analysis(), jax.jit(update).lower(*ARGUMENTS).compile().memory_analysis()
    assert ours.temp_size_in_bytes <= theirs.temp_size_in_bytes + size // 8


def test_a_table_in_place_is_right() -> None:
    rng = np.random.default_rng(0)
    tables = list(rng.standard_normal((2, 500, 64)).astype(np.float32))
    rows = rng.integers(0, 500, 128).astype(np.int32)  # several times the same
    assert len(set(rows)) < len(rows)
    arguments = (tables, rows, np.linspace(-1.0, 1.0, 64, dtype=np.float32))
    for ours, theirs in zip(stitch_jit(update)(*arguments), jax.jit(update)(*arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_pieces_that_save_a_kernel_stay() -> None:
    tensors = [jax.ShapeDtypeStruct((300, n), jnp.float32) for n in (1000, 1000)]
    plan = stitch_jit(moments).plan(tensors, tensors, tensors)
    assert len(plan.kernels) == 2 and plan.launches < plan.xla_launches
