"""Each row of the table where its version is installed: ``jax.jit`` has the fault, and stitched the result is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.jit.known_faults import FAULTS, Effect, Fault, applying
from jax_stitch.jit.known_faults.table import version_numbers
from tests.fusion.forced import hlo_of, run, stitched
from tests.known_faults.programs import PROGRAMS

HERE = {fault.name for fault in applying(jaxlib.__version__, ("cpu",))}
MENDED = [fault.name for fault in FAULTS if fault.options]
KERNELS_ALONE = [fault.name for fault in FAULTS if fault.name in PROGRAMS and not fault.options]
ROOT = Path(__file__).resolve().parents[2]


def right_under_jit(names: Iterable[str], flags: str = "") -> dict[str, bool]:
    """Which programs are right under plain ``jax.jit``, in a process of their own: some end it."""
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.known_faults.programs", *names]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        printed = done.stdout
    except subprocess.TimeoutExpired as hanging:
        printed = (hanging.stdout or b"").decode()
    return dict(json.loads(line) for line in printed.splitlines())


def test_jit_has_the_faults_of_this_version_and_no_others() -> None:
    """A row whose bounds are wrong: one that this jaxlib does not have is said to be there, or the other way about."""
    last = "high_rank_sum"  # It may end the process.
    found = right_under_jit([*(name for name in PROGRAMS if name != last), last])
    assert PROGRAMS.keys() - {name for name, right in found.items() if right} == HERE & PROGRAMS.keys()


def test_flags_for_the_whole_process_mend_them() -> None:
    """Flags that the table names and that this XLA does not know, or that do not help."""
    with_flags = [fault for fault in FAULTS if fault.flags and fault.name in HERE]
    found = right_under_jit([f.name for f in with_flags], " ".join({f.flags for f in with_flags}))
    assert found == {fault.name: True for fault in with_flags}


@pytest.mark.parametrize("mode", ["auto", "now", "async"])
@pytest.mark.parametrize("name", MENDED)
def test_stitched_is_right_from_the_first_call_on(name: str, mode: Any) -> None:
    """A first call, or one after the work in the background, that runs what XLA gets wrong, or ends the process."""
    program = PROGRAMS[name]()
    function = stitch_jit(program.function, mode=mode)
    assert program.is_right(function(*program.args))
    assert function.wait(60)
    for _ in range(3):
        assert program.is_right(function(*program.args))


def test_a_sum_along_seven_dimensions_is_right() -> None:
    """jax#39257: where jaxlib is 0.10.2 it is wrong or ends the process, on some processors."""
    x = np.random.default_rng(0).random((6,) * 7, np.float32)
    y = x[:1, :, :1, :1, :1, :1, :1]
    function = stitch_jit(lambda x, y: jnp.sum(x * y, 1))
    np.testing.assert_allclose(function(x, y), (x * y).sum(1), rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS_ALONE)
def test_our_kernels_are_right(name: str) -> None:
    """A kernel that has the fault of XLA's: the table says that it has not."""
    program = PROGRAMS[name]()
    made = stitched(hlo_of(program.function, *program.args), devices.get("cpu"))
    assert made.kernels
    assert program.is_right(run(made, program.args)[0])


def test_stacked_results_of_a_scan_are_one_kernel() -> None:
    """jax#40101: a scan whose results are left to XLA, which takes as long as writing all of them at each step."""

    def scanned(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (0.5 * c + 1.0, 0.5 * c + 1.0), x, None, length=20_000)

    plan = stitch_jit(scanned).plan(jnp.float32(0), device="cpu")
    assert len(plan.kernels) == 1


def test_options_of_the_user_stay() -> None:
    """An option of the user's that is lost where a fault is mended, or one that keeps it from being mended."""
    program = PROGRAMS["shifted_update"]()
    options = {"xla_disable_hlo_passes": "zero_sized_hlo_elimination"}
    for mode in ("auto", "now"):
        function = stitch_jit(program.function, mode=mode, compiler_options=options)
        assert program.is_right(function(*program.args))


def test_faults_inside_other_functions_are_left() -> None:
    """Options for a part of a program, which JAX refuses: a stitched function raises where another one is traced."""
    program = PROGRAMS["shifted_update"]()
    function = stitch_jit(program.function, mode="now")
    assert jax.jit(lambda x: function(x) + 1)(*program.args).shape == program.right.shape
    assert jax.vmap(function)(np.stack(program.args)).shape == (1, *program.right.shape)


def test_versions_have_bounds() -> None:
    """A version at the edge that counts as affected: the first that is mended, or the last before the fault came."""
    fault = Fault("name", "title", Effect.WRONG, (), "cpu", "remedy", since=(0, 10, 2), before=(0, 11, 1))
    for version, has in {"0.10.1": False, "0.10.2": True, "0.11.0": True, "0.11.1": False, "0.12": False}.items():
        assert fault.is_of(version_numbers(version)) is has
    assert version_numbers("0.11.1.dev20260801") == (0, 11, 1)


def test_rows_are_told_apart() -> None:
    """Two rows of one name, of which the tests and the conditions would see one."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
