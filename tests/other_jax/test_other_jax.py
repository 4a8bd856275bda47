"""User code goes on, with right results, on a JAX that lacks what we use, has it otherwise, or is new."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from jax_stitch.util.jax_names.forms import Registry
from jax_stitch.util.jax_names.name import EVERYTHING
from jax_stitch.util.jax_names.table import NAMES, Name
from tests.other_jax.conftest import ROOT, Run
from tests.other_jax.faulty_jax import MISSING, ONE_MORE, OTHER

REGISTRIES = [entry.name for entry in NAMES if isinstance(entry.form, Registry)]
pytestmark = pytest.mark.xdist_group("other_jax")


@pytest.fixture
def new() -> str:
    """Return a version of which no process has a verdict; compiled kernels are shared between such versions."""
    return f"99.{secrets.randbits(60)}"


@pytest.mark.parametrize("fault", [MISSING, OTHER])
@pytest.mark.parametrize("entry", NAMES, ids=lambda entry: entry.name)
def test_a_name_that_is_not_as_we_know_it(entry: Name, fault: str, under: Run) -> None:
    """Without the look at names first, what uses a missing one raises out of the user's call, or of the import."""
    seen = under(name=entry.name, fault=fault)
    assert seen.get("right") is True, seen
    if entry.lost != EVERYTHING:
        assert not seen["warnings"]
        return
    (warning,) = seen["warnings"]
    assert "plain jax.jit" in warning
    for told in (warning, seen["plan"], seen["status"]):
        assert entry.full_name in told


@pytest.mark.parametrize("name", ["none", *REGISTRIES])
def test_rules_that_a_new_jax_calls_otherwise(name: str, under: Run, new: str) -> None:
    """How rules are called is seen by no look at names: without the canary, the user's derivative or vmap raises. And a
    canary that always refuses leaves nothing stitched.
    """
    planted = {} if name == "none" else {"name": name, "fault": ONE_MORE}
    first, again = (under(version=new, **planted) for _ in range(2))
    for seen in (first, again):
        assert seen.get("right") is True, seen
        if name == "none":
            assert not seen["warnings"] and "stitched kernel" in seen["plan"]
        else:
            (warning,) = seen["warnings"]
            assert new in warning and "when it was tried" in warning
    assert (first["tries"], again["tries"]) == (1, 0)  # The verdict is kept.


def test_a_new_jax_is_tried_once(under: Run, new: str) -> None:
    """A verdict that is kept for another version says nothing of this one; what is missing needs no trial."""
    tries = [under(version=version, ways=["a call"])["tries"] for version in (new, new, f"{new}.1")]
    assert tries == [1, 0, 1]
    assert under(version=f"{new}.2", name="ad.Zero", fault=MISSING)["tries"] == 0


def test_what_the_machine_lacks_is_no_verdict(under: Run, new: str, tmp_path: Path) -> None:
    """A verdict kept where there was no compiler, or no room, would keep a good JAX plain for ever."""
    without = {"JAX_STITCH_CACHE_DIR": str(tmp_path), "PATH": str(tmp_path), "CXX": ""}
    for _ in range(2):
        seen = under(version=new, env=without, ways=["a call"])
        assert seen.get("right") is True, seen
        assert len(seen["warnings"]) == 1
        assert seen["tries"] == 1
    assert not list(tmp_path.glob("devices/canary-*"))


def test_a_folder_that_cannot_be_written_keeps_nobody_from_the_trial(under: Run, new: str, tmp_path: Path) -> None:
    """An error of the store inside the canary would raise out of the user's call."""
    place = tmp_path / "file"
    place.write_text("")
    seen = under(version=new, env={"JAX_STITCH_CACHE_DIR": str(place)}, ways=["a call"])
    assert seen.get("right") is True, seen
    assert seen["tries"] == 1 and not seen["warnings"]


def test_strict_functions_raise(under: Run) -> None:
    """A strict function that ran plain on a JAX that lacks a name would say nothing of it."""
    seen = under(name="mlir.lower_fun", fault=MISSING, strict=True)
    assert seen["raised"].startswith("UnstitchableError: fun cannot be stitched") and "lower_fun" in seen["raised"]


def test_mode_off_needs_no_trial(under: Run, new: str) -> None:
    """Who turned the package off would wait for the trial, and read a warning."""
    for fault in ({}, {"name": "mlir.lower_fun", "fault": MISSING}):
        seen = under(version=new, env={"JAX_STITCH_MODE": "off"}, **fault)
        assert seen.get("right") is True, seen
        assert not seen["warnings"] and not seen["tries"]


def test_a_jax_that_is_too_old(under: Run) -> None:
    """The first private name that it lacks would be named, and not what to install."""
    said = under(version="0.9.2")["raised"]
    assert said.startswith("ImportError") and "0.9.2" in said and "jax 0.10 to" in said and "pip install" in said


def test_a_jaxlib_that_does_not_fit_jax(tmp_path: Path) -> None:
    """JAX says what to install; an error of ours in its place, or plain jax.jit, would hide that."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise RuntimeError('jaxlib is version 0.1, too old: pip install')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "from jax_stitch import stitch_jit"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1] == "RuntimeError: jaxlib is version 0.1, too old: pip install"


def test_a_tested_jax_is_not_tried(under: Run) -> None:
    """The trial takes many seconds: on a version that the tests run with, no process may pay for it."""
    seen = under()
    assert seen["right"] and not seen["tries"] and not seen["warnings"]
