"""Kernels that nobody has any more are unloaded, and no others: a process that stitches for ever keeps its size."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import HostKernel, compile_all, parallel
from jax_stitch.backend.launch import call, host
from jax_stitch.emit.source import KernelSource
from jax_stitch.jit.rebuilt import elsewhere
from tests.compile.conftest import make
from tests.faults import maker
from tests.faults.trial import everything_is_worth_it
from tests.light import light

__all__ = ["light"]

X = np.random.default_rng(0).standard_normal((16, 48)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("only_new_objects")


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Programs from disk as well."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))


def fresh(number: float) -> Any:
    return lambda x: jnp.tanh(x - x.mean(-1, keepdims=True)) * x.sum(-1, keepdims=True) * number


def same(found: Any, number: float) -> None:
    wanted = np.tanh(X - X.mean(-1, keepdims=True)) * X.sum(-1, keepdims=True) * number
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def forget() -> None:
    jax.clear_caches()
    gc.collect()


def test_mappings_are_given_back() -> None:
    """Ten for each function stayed; 65,530 are the limit of a process."""
    same(stitch_jit(fresh(0.5))(X), 0.5)
    forget()
    before = mappings()
    for n in range(4):
        f = stitch_jit(fresh(1.0 + n))
        same(f(X), 1.0 + n)
        del f
    held = mappings()
    forget()
    assert held - before >= 12, "four kernels are loaded"
    assert mappings() - before <= 4
    f = stitch_jit(fresh(1.0))
    same(f(X), 1.0)


def test_the_default_mode_gives_them_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions have two programs each, and a thread that made one of them."""
    monkeypatch.setenv(maker.VARIABLE, "null")
    monkeypatch.setattr(elsewhere, "MAKER", elsewhere.MAKER)
    planner = maker.install()
    held, before = [], 0
    with everything_is_worth_it():
        for n in range(5):
            f: Any = stitch_jit(fresh(30.0 + n), mode="auto")
            same(f(X), 30.0 + n)
            assert f.wait(300)
            while not f.status().decided:
                same(f(X), 30.0 + n)
            assert f.status().programs[0].state == "stitched"
            same(f(X), 30.0 + n)
            held.append(f)
            if n == 0:
                before = mappings()
    assert mappings() - before >= 12, "four more kernels are loaded"
    for f in held:
        f.clear_cache()
    forget()
    assert mappings() - before <= 4
    planner.shut_down()


def test_kernels_in_use_stay() -> None:
    """By an executable, whoever has forgotten the function."""
    compiled = stitch_jit(fresh(7.0)).lower(X).compile()
    forget()
    same(compiled(X), 7.0)


def test_what_is_lowered_can_be_compiled_later() -> None:
    lowered = stitch_jit(fresh(8.0)).lower(X)
    forget()
    first = lowered.compile()
    same(first(X), 8.0)
    del first
    forget()
    same(lowered.compile()(X), 8.0)


def test_two_functions_with_one_kernel() -> None:
    """One goes and the other stays."""
    one, other = stitch_jit(fresh(9.0)), stitch_jit(fresh(9.0))
    same(one(X), 9.0)
    same(other(X), 9.0)
    one.clear_cache()
    del one
    gc.collect()
    same(other(X), 9.0)
    same(jax.jit(lambda x: other(x))(X), 9.0)


def test_unloading_while_it_runs() -> None:
    """Results are not there yet when the function and its executable are forgotten."""
    large = np.ones((2048, 1024), np.float32)
    for n in range(3):
        f = stitch_jit(fresh(10.0 + n))
        result = f(large)
        del f
        forget()
        assert float(np.asarray(result).sum()) == 0.0


def test_threads_share_their_memory_between_kernels() -> None:
    """Each kernel kept its own in each thread, which pinned its library."""
    f = stitch_jit(fresh(20.0))
    threads = [threading.Thread(target=lambda f=f: same(f(X), 20.0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = len(host._registered)
    del f
    forget()
    assert len(host._registered) < known


def test_a_kernel_stays_when_what_it_was_compiled_with_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small kernels share a shared object. The first of them that nobody had any more took the others with it."""
    monkeypatch.setattr(parallel, "usable_cores", lambda: 1)
    x = jnp.zeros(1024)

    def running(kernel: HostKernel, source: KernelSource) -> Callable[[], np.ndarray]:
        def run(x: jax.Array) -> jax.Array:
            with host.held_by_program():
                return call(kernel, source, x)[0]

        return lambda: np.asarray(jax.jit(run)(x))

    sources = [make(name=f"kernel{n}", value=f"{n}.5f") for n in range(3)]
    calls = [running(k, s) for k, s in zip(compile_all(sources, "host"), sources, strict=True)]
    assert [c()[0] for c in calls] == [1.5, 2.5, 3.5]
    for n in range(3):
        before = mappings()
        del calls[0]
        forget()
        assert [c()[0] for c in calls] == [k + 1.5 for k in range(n + 1, 3)]
        assert n < 2 or mappings() < before, "nobody has any of them"
