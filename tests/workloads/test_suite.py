"""Every workload, stitched: right on the CPU, right with an H200's kernels, and fewer launches than XLA there."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.workloads import WORKLOADS, Workload
from jax_stitch.api import stitch, stitch_jit
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.emit.source import KernelSource
from jax_stitch.inspect.report.accuracy import agreement, reference
from jax_stitch.inspect.report.plan import Plan

DTYPES = ("float32", "bfloat16")
MAY_STAY_WITH_XLA = {"gelu_mlp"}
"""Workloads whose elementwise parts XLA may rightly keep in its GEMMs."""


HEAVY = {"adamw", "adamw_clipped", "training_step"}
"""Workloads of hundreds of kernels, whose compilation takes XLA several seconds."""


def is_fast(workload: Workload, size: tuple[int, ...], dtype: str) -> bool:
    """Whether a case runs by default: a size that divides nothing, and in float32 that of the design's table.

    Of the heavy workloads one.
    """
    if workload.name in HEAVY:
        return size == workload.test_sizes[1] and dtype == "float32" and workload.name == "training_step"
    return size == workload.test_sizes[1] or (dtype == "float32" and size == workload.size)


def cases(*, table_size: bool) -> list[Any]:
    """(name, size, dtype) of all workloads at their test sizes, and with ``table_size`` at the design's as well."""
    found = []
    for workload in WORKLOADS.values():
        for size in workload.test_sizes + ((workload.size,) if table_size else ()):
            for dtype in DTYPES:
                # One worker for what shares compiled programs.
                group = pytest.mark.xdist_group(f"{workload.name}-{dtype}")
                marks = [group] if is_fast(workload, size, dtype) else [group, pytest.mark.slow]
                label = f"{workload.name}-{'x'.join(map(str, size))}-{dtype}"
                found.append(pytest.param(workload.name, size, dtype, id=label, marks=marks))
    return found


@functools.lru_cache(maxsize=4)
def plain_and_exact(name: str, size: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """The results of ``jax.jit`` and in float64."""
    function, args = WORKLOADS[name].make(size, jnp.dtype(dtype))
    return jax.jit(function)(*args), reference(function, args)


@functools.lru_cache(maxsize=4)
def h200_plan(name: str, size: tuple[int, ...], dtype: str, device: str = "h200") -> Plan:
    """The plan for a described H200, or another GPU."""
    function, shapes = WORKLOADS[name].abstract(size, jnp.dtype(dtype))
    return stitch_jit(function).plan(*shapes, device=device)


def assert_agrees(stitched: Any, name: str, size: tuple[int, ...], dtype: str) -> None:
    plain, exact = plain_and_exact(name, size, dtype)
    wrong = [str(leaf) for leaf in agreement(stitched, plain, exact) if not leaf.agrees]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "size", "dtype"), cases(table_size=False))
def test_stitched_agrees_on_the_cpu(name: str, size: tuple[int, ...], dtype: str) -> None:
    """A wrong kernel; and, since falling back to plain ``jax.jit`` warns, a function that is not stitched at all."""
    function, args = WORKLOADS[name].make(size, jnp.dtype(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stitched = stitch_jit(function)(*args)
    assert_agrees(stitched, name, size, dtype)


@pytest.mark.parametrize(("name", "size", "dtype"), cases(table_size=False))
def test_kernels_for_the_h200_agree_on_the_host(name: str, size: tuple[int, ...], dtype: str) -> None:
    """A wrong schedule for the GPU: its kernels, with its launch dimensions, through the host runtime."""
    function, args = WORKLOADS[name].make(size, jnp.dtype(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stitched = jax.jit(stitch(function, schedule_device="h200"))(*args)
    assert_agrees(stitched, name, size, dtype)


@pytest.mark.parametrize(("name", "size", "dtype"), cases(table_size=True))
def test_the_h200_program_compiles_with_fewer_launches(name: str, size: tuple[int, ...], dtype: str) -> None:
    """A rebuilt program that XLA refuses, or one that launches more than XLA's own."""
    plan = h200_plan(name, size, dtype)
    assert plan.kernels or name in MAY_STAY_WITH_XLA
    assert plan.launches <= plan.xla_launches, str(plan)
    if plan.xla_launches > 1 and name not in MAY_STAY_WITH_XLA:
        assert plan.launches < plan.xla_launches, str(plan)


@pytest.mark.parametrize("sm", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("name", "size", "dtype"), cases(table_size=True))
def test_nvrtc_takes_the_h200_kernels(name: str, size: tuple[int, ...], dtype: str, sm: str) -> None:
    """Source that is C++ for the host compiler but not for CUDA, or not before sm_90; or clusters of blocks on a device
    that has none, where the rows they take are laid out otherwise.
    """
    plan = h200_plan(name, size, dtype)
    if sm == "sm_80" and any("cluster" in k.composition for k in plan.kernels):
        plan = h200_plan(name, size, dtype, "a100")
    for kernel in plan.kernels:
        launch = kernel.launch
        source = KernelSource(kernel.name, kernel.source, (), (), launch.grid, launch.block, launch.shared_bytes)
        assert f".entry {kernel.name}" in compile_ptx(source, sm).ptx


@pytest.mark.parametrize(
    "workload", [pytest.param(w, id=w.name, marks=[pytest.mark.slow] * (w.name in HEAVY)) for w in WORKLOADS.values()]
)
def test_xla_needs_several_launches_where_the_table_says_so(workload: Workload) -> None:
    """A workload whose text XLA has learnt to run as one kernel, or a wrong count; exact counts are a jax version's."""
    plan = h200_plan(workload.name, workload.size, "float32")
    assert (plan.xla_launches > 1) == (workload.xla_launches > 1)
    assert 0.7 < plan.xla_launches / workload.xla_launches < 1.4
