"""Settings that must be made before JAX is imported, for all tests."""

from __future__ import annotations

import gc
import importlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import shares

# Both are read when JAX is imported. With the CUDA plugin installed and no driver, JAX prints a traceback without them.
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Tests of kernels and plans want them at the first call; those of other modes say so.
os.environ["JAX_STITCH_MODE"] = "now"
os.environ["JAX_STITCH_VERIFY_PASSES"] = "1"
# On a busy machine anything may take so long that it is spoken of on the standard error.
os.environ.setdefault("JAX_STITCH_LOG", "off")

# Keeps tests out of the user's cache. Entries are keyed by content, so that runs may share the folder.
CACHE = Path(__file__).resolve().parent.parent / ".pytest_cache" / "jax_stitch"
os.environ.setdefault("JAX_STITCH_CACHE_DIR", str(CACHE))

BANDWIDTH = 16e9
"""Bytes per second of this machine's memory, as plans of the tests have it: what was measured beside other tests, or on
another machine, would choose other kernels."""

LIGHT = "--xla_backend_optimization_level=1"
"""At none, gradients of powers are no numbers (jaxlib 0.10.2)."""

BETWEEN_COLLECTIONS = 10_000
"""Objects that are made before the youngest are looked through."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="of functions with many cases only some: see tests/shares.py")
    parser.addoption("--costs", metavar="FILE", help="add what each case takes of the processor to FILE")


def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes says nothing on a busy machine. Whoever changed nothing finds what they found before.
    quick = config.getoption("--quick")
    settings.register_profile("ours", deadline=None, derandomize=quick, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("ours")
    if quick:
        config.pluginmanager.register(shares.Quick())
        # What XLA makes is what ours is compared with, once: a third of the time was its compiler.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {LIGHT}".strip()
    if (path := config.getoption("--costs")) is not None:
        config.pluginmanager.register(shares.Costs(path))


def pytest_sessionstart() -> None:
    # The package's ``cpu`` is the function of that name.
    importlib.import_module("jax_stitch.devices.cpu").memory_bandwidth = lambda *_: BANDWIDTH  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What is imported by now stays: to look through it again and again for what could be freed took a tenth of the
    time in Python."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(BETWEEN_COLLECTIONS)


@pytest.fixture
def only_new_objects() -> None:
    """Have collections, and looks at who holds an object, go through what the test makes alone: after thousands of
    tests a collection takes a second, and JAX's search for what holds a leaked tracer a minute."""
    gc.freeze()


@pytest.fixture
def zen3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine's CPU for one with vectors of 8 floats and a level 2 of half a megabyte."""
    from jax_stitch.devices.cpu import CPU_VARIABLE

    monkeypatch.setenv(CPU_VARIABLE, "zen3")


@pytest.fixture
def zen4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine's CPU for one with vectors of 16 floats and a level 2 of a megabyte."""
    from jax_stitch.devices.cpu import CPU_VARIABLE

    monkeypatch.setenv(CPU_VARIABLE, "zen4")


@pytest.fixture(autouse=True)
def everything_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test passes on a plan that an earlier run left on disk, or fails on a kernel that one has given up on a busy
    machine; those of the cache itself override this."""
    from jax_stitch.backend.compile import given_up
    from jax_stitch.jit.rebuilt import find

    monkeypatch.setattr(given_up, "_mark_of", lambda id: None)
    monkeypatch.setattr(find, "load", lambda name: None)
    monkeypatch.setattr(find, "keep", lambda name, program: None)
