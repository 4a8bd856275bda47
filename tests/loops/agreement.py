"""What tests of loops share: how results are compared, and what a plan must look like."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch, stitch_jit
from jax_stitch.inspect.report.plan import Plan

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def assert_equals_xla(function: Callable[..., Any], args: tuple[Any, ...], device: str) -> None:
    """Runs the kernels scheduled for ``device`` on this machine: floats must agree closely, all else to the bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = jax.jit(stitch(function, schedule_device=device))(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if jnp.issubdtype(a.dtype, jnp.floating):
            rough = jnp.finfo(a.dtype).bits < 32
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            np.testing.assert_allclose(a, b, rtol=2e-2 if rough else 5e-4, atol=1e-2 if rough else 5e-6)
        else:
            np.testing.assert_array_equal(a, b)


def loops_of(function: Callable[..., Any], args: tuple[Any, ...], device: str | None = None) -> tuple[Plan, int]:
    """The plan for ``device`` (the CPU by default), and how many of its kernels hold loops."""
    plan = stitch_jit(function).plan(*args, device=device)
    return plan, sum("// a loop of" in k.source for k in plan.kernels)
