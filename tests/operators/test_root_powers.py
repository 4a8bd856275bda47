"""Powers of a half and of one and a half, which a root is enough for on a CPU, at all that is special."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from tests.fusion import forced

EXPONENTS = (0.5, -0.5, 1.5, -1.5)


def numbers(dtype: str) -> np.ndarray:
    """Zeros, subnormal and huge numbers, infinities, and many of all sizes."""
    info = np.finfo(dtype)
    special = [0.0, 1.0, np.inf, np.nan, info.tiny, info.smallest_subnormal, info.smallest_subnormal * 1000, info.max]
    sizes = np.random.default_rng(0).lognormal(0, 20, 2000).clip(info.tiny, info.max)
    return np.concatenate([special, np.negative(special), sizes, -sizes[:10]]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_roots_are_powers(dtype: str) -> None:
    """Catches a root of minus zero or minus infinity, a product that overflows where the power does not, and a
    subnormal number taken for zero.
    """
    with jax.enable_x64(dtype == "float64"):
        x = jnp.asarray(numbers("float32" if dtype == "bfloat16" else dtype), dtype)

        def powers(x: Any) -> Any:
            # The maximum makes them one kernel, on any machine.
            return [*(jax.lax.pow(x, jnp.full_like(x, e)) for e in EXPONENTS), x.max()]

        function = stitch_jit(powers)
        with forced.everything_pays():
            assert function.plan(x).kernels
            got = [np.asarray(r, np.float64) for r in function(x)[:-1]]
        plain = [np.asarray(r, np.float64) for r in jax.jit(powers)(x)[:-1]]
    unit = float(jnp.finfo(dtype).eps)
    for e, ours, xla in zip(EXPONENTS, got, plain, strict=True):
        with np.errstate(all="ignore"):
            right = np.power(np.asarray(x, np.longdouble), e)
            right = np.asarray(right.astype(x.dtype), np.float64)
            near = np.abs(ours - right) <= 3 * unit * np.abs(right)
        same = (ours == right) | (np.isnan(ours) & np.isnan(right))
        # XLA's threads take what is below the smallest normal number for zero, and so do ours.
        as_xla = (ours == xla) | (np.isnan(ours) & np.isnan(xla))
        wrong = ~(near | same | as_xla)
        assert not wrong.any(), [(float(x[i]), e, ours[i], right[i]) for i in np.flatnonzero(wrong)[:5]]
