"""No kernel of the suite spills registers on any of five GPUs; one that would is laid out again."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.resources import CAPTURED_FOR, GPUS, Usage, table, usages
from bench.suites import Case
from bench.workloads import ALL, PROGRAMS, WORKLOADS
from jax_stitch import devices
from jax_stitch.backend.compile import NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import Capture, capture
from jax_stitch.jit.tune.spills import fit
from tests.fusion import forced

try:
    nvrtc.nvrtc()
except NvrtcMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

HEAVY = {"adamw", "adamw_clipped", "training_step"}
NAMES = [*WORKLOADS, *(w.name for w in PROGRAMS.values() if w.family == "statistics")]


def cases() -> list[Any]:
    found = []
    for dtype in ("float32", "bfloat16", "float16"):
        for number, name in enumerate(NAMES):
            fast = dtype == "float32" and name not in HEAVY and number % 2 == 0
            found.append(pytest.param(name, dtype, id=f"{name}-{dtype}", marks=[] if fast else [pytest.mark.slow]))
    return found


@functools.lru_cache(maxsize=1)
def captured(name: str, dtype: str) -> Capture:
    workload = ALL[name]
    function, shapes = workload.abstract(workload.size, jnp.dtype(dtype))
    return capture(function, shapes, devices.get(CAPTURED_FOR))


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_nothing_spills(name: str, dtype: str) -> None:
    """A schedule that keeps more in registers than a thread has, on the GPUs with the fewest as well."""
    case = Case(ALL[name], ALL[name].size, ALL[name].size)
    rows = [row for gpu in GPUS for row in usages(captured(name, dtype), devices.get(gpu), case, dtype)]
    assert not [row for row in rows if row.spill_bytes or row.stack_bytes]
    for row in rows:
        assert row.blocks_together >= 1, row  # else the launch fails
        assert 0 < row.registers <= 255 and row.registers * row.block <= 65536
    if rows:
        assert name in table(rows) and "none of them with spilled registers" in table(rows)


ALONE = [n for n in NAMES if n not in HEAVY]
"""Of the heavy ones ptxas has from 40 to 254 registers for one text, by how it orders a hundred parts' scalars."""


@pytest.mark.parametrize(
    "names", [pytest.param(ALONE[::3], id="a_third"), pytest.param(ALONE, id="all", marks=pytest.mark.slow)]
)
def test_estimated_registers_follow_the_compiler(names: list[str]) -> None:
    """Life times that end too early or never: each estimate within a factor of 2 of what ptxas uses, half of them
    within a quarter, and kernels in much the same order.
    """
    rows = [
        row
        for name in names
        for row in usages(
            captured(name, "float32"), devices.get("h200"), Case(ALL[name], ALL[name].size, ALL[name].size), "float32"
        )
    ]
    estimated, used = (np.array(v, float) for v in zip(*((r.estimated, r.registers) for r in rows), strict=True))
    ratios = estimated / used
    assert ((ratios > 0.5) & (ratios < 2)).all(), [r for r, q in zip(rows, ratios, strict=True) if not 0.5 < q < 2]
    assert ((ratios > 0.8) & (ratios < 1.25)).mean() >= 0.5
    assert spearmanr(estimated, used).statistic > 0.7


def test_spills_are_told() -> None:
    row = Usage("w", (8,), "float32", "h200", "sm_90", "k", 1, 256, 32, 30, 16, 8, 1024, 8, 1.0, "threads")
    assert "16 B spilled" in table([row]) and "1 of them with spilled registers" in table([row])


def many_kept(x: jax.Array) -> tuple[jax.Array, ...]:
    """Column sums beside rows whose elements are kept for a second pass."""
    y = jnp.exp(x - x.max(1, keepdims=True))
    z = y / y.sum(1, keepdims=True)
    return z, z.sum(0), (z * x).sum(0), (z * z * x).sum(1)


def test_a_kernel_that_spills_is_laid_out_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many threads to a multiprocessor for what each keeps: fewer, and a grid that still fits; the results hold.

    The length is odd: rows in vectors have one block to a multiprocessor from the start.
    """
    target = forced.device("h200", multiprocessors=8)
    x = np.random.default_rng(0).standard_normal((40, 6001)).astype(np.float32)
    with jax.enable_x64(True):
        text = forced.hlo_of(many_kept, x)
        # 32 registers to a thread.
        monkeypatch.setattr(importlib.import_module("jax_stitch.schedule.residency"), "RESIDENT_THREADS", 2048)
        made = forced.stitched(text, target)
        fitted = fit(made, "sm_90")
        before, after = (max(compile_ptx(s, "sm_90").spill_bytes for s in m.sources) for m in (made, fitted))
        assert before > 0 and after == 0
        for old, new in zip(made.kernels, fitted.kernels, strict=True):
            bounds = [
                tuple(map(int, re.findall(r"__launch_bounds__\((\d+), (\d+)", k.source.text)[0])) for k in (old, new)
            ]
            assert bounds[0][0] * bounds[0][1] > bounds[1][0] * bounds[1][1]
            assert new.source.grid <= bounds[1][1] * target.multiprocessors
        checked = check_function(fitted, [x])
        assert not checked.errors, str(checked)
        for got, want in zip(checked.results, many_kept(jnp.asarray(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    assert fit(fitted, "sm_90") is fitted
    assert fit(made, "host") is made
