"""How threads share out the blocks of a kernel on a CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jax.ffi

from jax_stitch.backend.compile import toolchain

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "jax_stitch" / "backend" / "launch"


def test_each_block_runs_once_and_threads_stay_apart(tmp_path: Path) -> None:
    """Catches: a piece that two threads take, or none; two threads in one share, at neighbouring blocks all along,
    which took half as long again.
    """
    program = tmp_path / "grid"
    found = [f"-I{HEADERS}", f"-I{jax.ffi.include_dir()}"]
    command = [*toolchain.compiler(), "-std=c++17", "-O1", "-pthread", *found, str(HERE / "grid.cc"), "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True, capture_output=True, text=True, timeout=120)
    said = subprocess.run([program], check=True, capture_output=True, text=True, timeout=120).stdout.split()
    grids, wrong, *order = map(int, said)
    assert grids > 2000 and wrong == 0
    assert order == [0, 1, 2, 3, 3, 2, 1], "its own share from the start, then the other's from the end"
