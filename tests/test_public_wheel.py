"""`make wheel`: made without a network, installed, and run without compiling what it holds compiled."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from jax_stitch import __version__

ROOT = Path(__file__).resolve().parent.parent
MAKER = ROOT / "packaging" / "linux" / "make_wheel.py"

pytestmark = pytest.mark.xdist_group("wheel")  # They share one.

USE = """
from pathlib import Path
import jax, jax.numpy as jnp
import jax_stitch
from jax_stitch.backend.compile import toolchain

compiled, real = [], toolchain.shared_object
toolchain.shared_object = lambda name, *rest, **more: (compiled.append(name), real(name, *rest, **more))[1]
stitched = jax_stitch.stitch_jit(lambda x: jnp.cumsum(x, -1) / x.sum(-1, keepdims=True), mode="now")
x = jax.random.uniform(jax.random.key(0), (64, 256))
assert jnp.allclose(stitched(x)[:, -1], 1, rtol=1e-5)
print(Path(jax_stitch.__file__).parent, jax_stitch.__version__, *compiled, sep="\\n")
"""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_wheel", MAKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(MAKER), "--no-build-isolation", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=out)
    assert run.returncode == 0, f"{run.stderr}\nThe extra [test] has the setuptools that this needs."
    return Path(run.stdout.strip())


def test_the_wheel_is_for_linux_and_says_what_it_holds(wheel: Path) -> None:
    """pip takes a wheel by its name, and checks its files against its list."""
    assert wheel.name.startswith(f"jax_stitch-{__version__}-py3-none-") and "linux" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        text = files.read(about).decode()
        listed = files.read(about.replace("WHEEL", "RECORD")).decode().splitlines()
    assert f"Tag: {'-'.join(wheel.stem.split('-')[2:])}\n" in text and "Root-Is-Purelib: false" in text
    assert sorted(line.split(",")[0] for line in listed) == sorted(names)
    assert sum(bool(re.fullmatch(r"jax_stitch/backend/launch/handler-.*\.compiled", name)) for name in names) == 1
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "bench/", "build/"))]


def test_the_installed_wheel_uses_its_handler(wheel: Path, tmp_path: Path) -> None:
    """The handler was not found where pip puts it, or was not of the same texts: compiled at the first use again."""
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(place), str(wheel)], check=True, cwd=tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(place), "JAX_STITCH_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-P", "-c", USE], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert run.returncode == 0, run.stderr
    folder, version, *compiled = run.stdout.splitlines()
    assert folder == str(place / "jax_stitch") and version == __version__
    assert compiled and "FFI handler" not in compiled, "kernels are compiled, the handler is not"


@pytest.mark.parametrize(
    ("asked", "tag"),
    [
        ({"GLIBC": (2, 14), "CXXABI": (1, 3)}, "manylinux_2_17_x86_64"),
        ({"GLIBC": (2, 18)}, "manylinux_2_28_x86_64"),
        ({"GLIBC": (2, 14), "GLIBCXX": (3, 4, 29)}, "manylinux_2_34_x86_64"),
        ({"GLIBC": (2, 34), "CXXABI": (1, 3, 11), "GCC": (3, 0)}, "manylinux_2_34_x86_64"),
        ({"GLIBC": (2, 99)}, "linux_x86_64"),
    ],
)
def test_the_tag_is_of_the_oldest_systems_that_have_all(maker: ModuleType, asked: dict, tag: str) -> None:
    """A wheel that says it is for older systems than its file can be loaded on."""
    assert maker.tag_of(asked.items(), "x86_64") == tag


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(MAKER), "--out", str(tmp_path)],
        env={**os.environ, "CXX": "/no/such/compiler"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1 and "Traceback" not in run.stderr and not list(tmp_path.iterdir())
    assert run.stderr.startswith("The handler could not be compiled. $CXX is '/no/such/compiler'")


def test_a_library_that_not_all_have_makes_it_a_plain_tag(maker: ModuleType, tmp_path: Path) -> None:
    from jax_stitch.backend.compile import toolchain

    built = tmp_path / "x.so"
    built.write_bytes(toolchain.shared_object("x", 'extern "C" int x() { return 1; }', ["-O0"]))
    assert maker.system_tag(built, "x86_64").startswith("manylinux_2_")
    other = tmp_path / "libother.so"
    other.write_bytes(toolchain.shared_object("other", 'extern "C" int y() { return 1; }', ["-Wl,-soname,libother.so"]))
    text = 'extern "C" int y(); extern "C" int x() { return y(); }'
    built.write_bytes(toolchain.shared_object("x", text, ["-Wl,--no-as-needed", str(other)]))
    assert maker.system_tag(built, "x86_64") == "linux_x86_64"
