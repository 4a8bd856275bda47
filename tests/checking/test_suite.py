"""Every workload's kernels for the H200 through the checking mode: no finding, and the right results."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.workloads import ALL, WORKLOADS
from jax_stitch import devices
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.inspect.report.accuracy import agreement, reference
from jax_stitch.pipeline import Stitched, stitch_capture

FAMILIES = {w.family for w in WORKLOADS.values()} | {"statistics"}
DTYPES = ("float32", "bfloat16", "float16")
HEAVY = {w.name for w in ALL.values() if w.family in ("optimizer", "model")} | {"softmax_short_rows"}
"""Workloads of hundreds of tensors, or of many elements at their smallest."""
MAY_STAY_WITH_XLA = {"gelu_mlp"}
"""Those whose elementwise parts XLA may rightly keep in its GEMMs."""

pytestmark = pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")


def cases() -> list[Any]:
    """(name, size, dtype): by default the smallest size, in float32 and bfloat16 by turns; all test sizes in three
    types besides.
    """
    found = []
    for number, workload in enumerate(w for w in ALL.values() if w.family in FAMILIES):
        fast_dtypes = (DTYPES[number % 2],) if workload.name not in HEAVY else ()
        smallest = min(workload.test_sizes, key=prod)
        for size in workload.test_sizes:
            for dtype in DTYPES:
                fast = size == smallest and dtype in fast_dtypes
                label = f"{workload.name}-{'x'.join(map(str, size))}-{dtype}"
                found.append(
                    pytest.param(workload.name, size, dtype, id=label, marks=[] if fast else [pytest.mark.slow])
                )
    return found


@functools.lru_cache(maxsize=2)
def planned(name: str, size: tuple[int, ...], dtype: str) -> tuple[Stitched, Any, list[Any]]:
    """A workload for the described H200, the function and its arguments."""
    function, args = ALL[name].make(size, jnp.dtype(dtype))
    target = devices.get("h200")
    return stitch_capture(capture(function, args, target), target), function, list(args)


@pytest.mark.parametrize(("name", "size", "dtype"), cases())
def test_no_finding(name: str, size: tuple[int, ...], dtype: str) -> None:
    """A race, a barrier in a branch, an access out of bounds, a bank conflict, in any kernel that the suite runs."""
    stitched, function, args = planned(name, size, dtype)
    checked = check_function(stitched, jax.tree.leaves(args))
    assert not checked.faulty, str(checked)
    assert len(checked.launches) == sum(k.launches for k in stitched.kernels)
    assert checked.launches or name in MAY_STAY_WITH_XLA
    wrong = [
        str(leaf)
        for leaf in agreement(
            jax.tree.unflatten(jax.tree.structure(function(*args)), checked.results),
            jax.jit(function)(*args),
            reference(function, args),
        )
        if not leaf.agrees
    ]
    assert not wrong, "\n".join(wrong)


def test_the_whole_suite_is_there() -> None:
    assert {case.values[0] for case in cases()} > set(WORKLOADS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [w.name for w in ALL.values() if w.family not in FAMILIES])
def test_nothing_wrong_in_programs(name: str) -> None:
    """The same in whole programs and their loops, but for bank conflicts: odd rows of shared memory still have some."""
    workload = ALL[name]
    function, args = workload.make(min(workload.test_sizes, key=prod), jnp.dtype("float32"))
    target = devices.get("h200")
    checked = check_function(stitch_capture(capture(function, args, target), target), jax.tree.leaves(args))
    assert not checked.errors, str(checked)
