"""Modules that XLA prints, made once per test process by a process of its own."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
FAST = (
    *("attention", "adam", "dilated_convolution", "pooling_gradient", "lstm", "random_walk", "newton", "branches"),
    *("many_unary", "constants", "low_precision", "slices", "sorts", "reductions", "dots", "complex", "collectives"),
)
"""Programs that are compiled for the CPU; with those for a GPU, of each kind of instruction some."""
FAST_GPU = ("layer_norm_gradient", "cart_pole", "convolution_gradient", "gathers")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "xdist_group(name): tests that share a process (pytest-xdist's own, if installed)"
    )


def compile_programs(out: pathlib.Path, *arguments: str) -> dict[str, str]:
    """The texts of the programs' modules by file name: `NAME.lowered`, `NAME.cpu`, `NAME.gpu`."""
    command = [sys.executable, str(HERE / "programs.py"), str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {path.stem: path.read_text() for path in sorted(out.glob("*.hlo"))}


@pytest.fixture(scope="session")
def some_modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of one process, as each takes seconds to begin."""
    there = importlib.util.find_spec("jax_plugins") and importlib.util.find_spec("jax_plugins.xla_cuda13")
    gpu = ".gpu" if there else ""
    return compile_programs(tmp_path_factory.mktemp("some"), "--others", *FAST, *(n + gpu for n in FAST_GPU))


@pytest.fixture(scope="session")
def host_modules(some_modules: dict[str, str]) -> dict[str, str]:
    """Programs before optimization, and some of them compiled for the CPU."""
    return {name: text for name, text in some_modules.items() if not name.endswith(".gpu")}


@pytest.fixture(scope="session")
def some_gpu_modules(some_modules: dict[str, str]) -> dict[str, str]:
    """A few programs compiled for the described GPU."""
    pytest.importorskip("jax_plugins.xla_cuda13")
    return {name: text for name, text in some_modules.items() if name.endswith(".gpu")}


@pytest.fixture(scope="session")
def all_modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every program, before optimization, compiled for the CPU and for the described GPU."""
    pytest.importorskip("jax_plugins.xla_cuda13")
    return compile_programs(tmp_path_factory.mktemp("all"), "--gpu")
