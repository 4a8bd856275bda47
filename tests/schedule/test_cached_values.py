"""Values that a kernel caches are read at their own row, and after they are written."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.analysis.locality import Inside, NotLocal, elements, walk_row
from jax_stitch.ir.indices import const
from jax_stitch.ir.indices.variables import row_index
from tests.fusion import forced

RNG = np.random.default_rng(0)
INTEGERS = RNG.integers(0, 9, (5, 5, 8)).astype(np.uint16)


def sums_transposed(x: Any) -> tuple[Any, ...]:
    """Reductions of reductions, of which one goes along what are rows to the other."""
    low = lax.clamp(np.uint16(1), x, np.uint16(3))
    least = lax.reduce_and(low, (1, 2))
    shifted = (lax.broadcast_in_dim(least, x.shape, (1,)) * x) >> (lax.broadcast_in_dim(least, x.shape, (2,)) & 7)
    product = lax.reduce_prod(low, (1,))
    return lax.reduce_or(x, (0, 1)), shifted, lax.broadcast_in_dim(product, x.shape, (1, 2))


def sums_of_sums(x: Any) -> tuple[Any, ...]:
    turned = lax.transpose(x, (1, 0, 2))
    sums = lax.broadcast_in_dim(lax.reduce_sum(turned, (2,)), turned.shape, (0, 1))
    columns = lax.broadcast_in_dim(lax.reduce_xor(turned, (0, 2)), turned.shape, (1,))
    both = lax.reduce_xor(turned | sums, (0, 1))
    return sums << (lax.broadcast_in_dim(both, turned.shape, (1,)) & 7), sums | columns


def scans_of_other_rows(x: Any) -> tuple[Any, ...]:
    """A scan is at hand only at the row that the lanes are at."""
    return x // (x | 1), lax.clamp(np.uint16(1), lax.rev(lax.cumsum(x, 1), (0, 2)), np.uint16(3))


def scans_of_other_columns(x: Any) -> tuple[Any, ...]:
    """Nor at a column that is looked up."""
    scanned = lax.cumsum(x, 0, reverse=True)
    return x * 2, jnp.take(scanned, x[:1, 0] % 3, axis=1, mode="clip")


def places_of_the_least(x: Any) -> tuple[Any, ...]:
    """Results of a reduction in shared memory, which two passes read, are not kept in registers besides."""
    at = lax.argmin(x, 0, np.int32)
    return jnp.maximum(at.min(), at), x.sum()


PROGRAMS = {
    sums_transposed: np.ascontiguousarray(INTEGERS[:, :, :5]),
    sums_of_sums: RNG.integers(0, 9, (4, 100, 4)).astype(np.uint16),
    scans_of_other_rows: RNG.integers(0, 9, (33, 4, 4)).astype(np.uint16),
    scans_of_other_columns: INTEGERS[0],
    places_of_the_least: INTEGERS[0].astype(np.float32),
}


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_results(function: Any, target: str) -> None:
    x = PROGRAMS[function]
    text = forced.hlo_of(function, x)
    for order in (None, *range(12)):
        made = forced.stitched(text, forced.device(target), order)  # as many plans; the first is run
        if order is None:
            for got, want in zip(forced.run(made, [x]), jax.jit(function)(x), strict=True):
                np.testing.assert_array_equal(got, want)


def test_what_a_walk_starts_from_is_looked_for_at_its_own_row_too() -> None:
    built = forced.graph_from(
        "%x = f32[8,4] parameter(0)\n%z = f32[] constant(0)\n"
        "%r = f32[8] reduce(f32[8,4] %x, f32[] %z), dimensions={1}, to_apply=%add\n"
        "ROOT %n = f32[8] negate(f32[8] %r)",
        "%add {\n%a = f32[] parameter(0)\n%b = f32[] parameter(1)\nROOT %s = f32[] add(f32[] %a, f32[] %b)\n}\n",
    )
    (pattern,) = (p for kernel in forced.plan_of(built, forced.device("h200")).kernels for p in kernel)
    reduce = next(n.id for n in built.nodes if n.op == "reduce")
    row = row_index(pattern.rows)
    own, _ = elements(pattern.bindings[reduce], row)
    inside = Inside(built, pattern.nodes, pattern.bindings, {reduce}, row)
    assert not walk_row(inside, (reduce, own)).computed
    assert walk_row(inside, (reduce, own), expand_start=True).computed
    with pytest.raises(NotLocal):
        walk_row(inside, (reduce, (const(0),)))


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_what_a_longer_pass_computed_is_not_kept_for_a_shorter(device: str) -> None:
    """A sum over many copies of a value, and the value: both passes reach it by the same index, in other lanes. The
    check refused the kernel.
    """

    def fun(x: Any) -> Any:
        y = x
        for _ in range(40):
            y = jnp.maximum(y * 1.01, 0.5 - y)
        return jnp.sum(jax.lax.broadcast(y, (64,)) ** 2), y * 2, y.sum()

    x = (np.arange(64, 0, -1) / 64).astype(np.float32)
    made = forced.stitched(forced.hlo_of(fun, x), forced.device(device))
    assert len(made.kernels) == 1
    for got, want in zip(forced.run(made, [x]), fun(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
