"""``python -m jax_stitch``: what it prints, what it answers to wrong input, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.__main__ import main
from jax_stitch.inspect.cli import arguments
from jax_stitch.util import store

ROOT = Path(__file__).resolve().parent.parent

TOY = """
import jax, jax.numpy as jnp
from jax_stitch import stitch_jit

def softmax(x):
    return jax.nn.softmax(x, axis=0)

stitched = stitch_jit(softmax)

def scaled(x, factor, key):
    return x * factor + jax.random.normal(key, x.shape)

def make_args():
    return (jnp.ones((64, 33)),)

def make_one():
    return jnp.ones((64, 33))

number = 3
"""


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module ``toy`` in the working directory."""
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("toy", None)


def test_plan_as_text_json_and_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", "toy:softmax", "--args", "f32[1024,256]", "--device", "h200", "--source"]) == 0
    shown = capsys.readouterr().out
    assert "softmax on h200" in shown and '#include "stitch.h"' in shown
    page = tmp_path / "plan.html"
    line = ["plan", "toy:stitched", "--args", "f32[1024,256]", "--device", "h200", "--json", "--html", str(page)]
    assert main(line) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["device"] == "h200" and read["launches"] < read["xla_launches"]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_compare_makes_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "toy:scaled", "--args", "f32[64,33]", "0.5", "key", "--seconds", "0.1", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["function"] == "scaled" and read["agrees"]
    assert main(["compare", "toy:stitched", "--make-args", "toy:make_args", "--seconds", "0.1"]) == 0
    assert "jax.jit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [
        ("f32[8192,1024]", (8192, 1024), jnp.float32),
        ("bf16[]", (), jnp.bfloat16),
        ("s32[3, 4]", (3, 4), jnp.int32),
        ("pred[0]", (0,), jnp.bool_),
        ("float32[8,8]", (8, 8), jnp.float32),
        ("bfloat16[2]", (2,), jnp.bfloat16),
        ("int32[]", (), jnp.int32),
        ("i32[5]", (5,), jnp.int32),
        ("bool[3]", (3,), jnp.bool_),
    ],
)
def test_specs(spec: str, shape: tuple[int, ...], dtype: type) -> None:
    read = arguments.argument(spec)
    assert (read.shape, read.dtype) == (shape, jnp.dtype(dtype))
    (value,) = arguments.values((read,))
    assert (value.shape, value.dtype) == (read.shape, read.dtype)


def test_numbers_and_keys() -> None:
    assert arguments.argument("3") == 3 and isinstance(arguments.argument("3"), int)
    assert arguments.argument("1e-3") == 1e-3
    assert jnp.issubdtype(arguments.argument("key").dtype, jax.dtypes.prng_key)


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert "sm_90" in capsys.readouterr().out
    assert main(["devices", "--json"]) == 0
    read = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"cpu", "t4", "a100", "l4", "rtx4090", "h100", "h200", "b200"} <= read.keys()
    assert read["h200"]["sm"] == "sm_90" and read["cpu"]["sm"] is None


def test_clearing_the_cache_leaves_strangers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    store.write("kernels", "a.so", b"12345")
    size = (tmp_path / "kernels" / "a.so").stat().st_size
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    assert main(["cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["cleared"]) == (str(tmp_path), False)
    assert {"kind": "kernels", "files": 1, "bytes": size, "damaged": 0} in found["kinds"]
    assert main(["cache", "clear"]) == 0
    assert not (tmp_path / "kernels" / "a.so").exists()
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_starting_without_a_driver_prints_no_traceback() -> None:
    """The CUDA plugin without a driver makes JAX print one, unless told beforehand."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_PLATFORMS") and "CONSTRAINTS" not in k}
    command = [sys.executable, "-m", "jax_stitch", "plan", "jax.nn:softmax", "--args", "f32[64,128]"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr


def test_the_library_prints_none_either() -> None:
    """In a user's own script JAX's traceback came first, twenty lines long, before a plan that needs no driver."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_PLATFORMS") and "CONSTRAINTS" not in k}
    command = [sys.executable, "-c", "import jax_stitch, jax; print(jax.devices()[0].platform)"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "Traceback" not in run.stderr and len(run.stderr.splitlines()) <= 2, run.stderr
