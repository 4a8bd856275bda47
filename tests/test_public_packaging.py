"""What a wheel would leave out, what a fresh clone would lack."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", ["hlo_parser", "jax_stitch"])
def test_every_data_file_is_packaged(package: str) -> None:
    """A runtime header or device description that is missing from the wheel breaks only installed copies."""
    globs = PROJECT["tool"]["setuptools"]["package-data"][package]
    files = [p.relative_to(ROOT / package) for p in (ROOT / package).rglob("*") if p.is_file()]
    data = [f for f in files if f.suffix not in (".py", ".pyc", ".compiled")]  # The wheel adds the handler.
    left_out = [str(f) for f in data if not any(fnmatch.fnmatch(str(f), g.replace("**/", "*")) for g in globs)]
    assert data and not left_out


def test_every_folder_of_code_is_a_package() -> None:
    """setuptools' finder passes over folders without ``__init__.py``."""
    folders = {p.parent for package in ("hlo_parser", "jax_stitch") for p in (ROOT / package).rglob("*.py")}
    assert not [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()]


def test_the_library_needs_no_more_than_its_dependencies() -> None:
    """Flax, Optax and the CUDA plugin are extras: importing the library must not import them."""
    code = (
        "import sys, jax_stitch, hlo_parser, jax_stitch.__main__\n"
        "print([m for m in ('flax', 'optax', 'cupy', 'cuda', 'matplotlib', 'bench') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_parser_does_not_import_jax() -> None:
    code = "import sys, hlo_parser; print('jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_no_machine_paths_in_what_is_run_first() -> None:
    for name in ("Makefile", ".ci/run", "pyproject.toml", "README.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not [word for word in ("/root", "/home/", "/work/", "--index-url", "--find-links") if word in text], name
