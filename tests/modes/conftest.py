"""A planner that makes stitched programs known by their results, and that can be held up or fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jax_stitch.jit import lowering
from jax_stitch.jit.primitive import argument_types
from jax_stitch.jit.programs import record
from jax_stitch.jit.rebuilt import background

MARK = 1000.0
"""What a marked program adds to each result."""

LONG = 300.0
"""Seconds after which a test has failed: nothing that is waited for takes as long, on whatever machine."""


class Planner:
    """In place of the stages from capture to replay."""

    def __init__(self) -> None:
        self.open = threading.Event()
        """Cleared, whoever plans is held up."""
        self.open.set()
        self.failure: Exception | None = None
        self.seconds = 0.0
        """That a call of the stitched program takes longer."""
        self.instead: Callable[..., Any] | None = None
        """What the stitched program computes before it is marked, for functions that are slow themselves."""
        self.threads: list[str] = []
        """The thread of each planning."""
        self.precisions: list[Any] = []
        """``jax_default_matmul_precision`` in each planning."""

    def stitched(self, jaxpr: ClosedJaxpr, *_: Any) -> ClosedJaxpr:
        """Takes the place of ``lowering.stitched``."""
        config: Any = jax.config
        self.threads.append(threading.current_thread().name)
        self.precisions.append(config.jax_default_matmul_precision)
        assert self.open.wait(LONG)
        if self.failure is not None:
            raise self.failure

        def marked(*arrays: Any) -> list[Any]:
            results = jaxpr_as_fun(jaxpr)(*arrays) if self.instead is None else [self.instead(*arrays)]
            if self.seconds:
                results = [slowly(result, self.seconds) for result in results]
            return [(result + MARK).astype(result.dtype) for result in results]

        record.current().kernels += 1
        return jax.make_jaxpr(marked)(*argument_types(jaxpr))


def slowly(x: Any, seconds: float) -> Any:
    """``x``, so much later."""

    def wait(x: Any) -> Any:
        time.sleep(seconds)
        return x

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own: verdicts are kept there."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Planner]:
    planner = Planner()
    monkeypatch.setattr(lowering, "stitched", planner.stitched)
    yield planner
    planner.open.set()
    _finish()


class _Last:
    """A job after those of a test."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def run(self) -> None:
        self.done.set()

    def abandon(self, forked: bool) -> None:
        self.done.set()


def _finish() -> None:
    """Waits until what a test left to the background is done, which another test's planner would take for its own."""
    last = _Last()
    background.submit(last)
    assert last.done.wait(LONG)


class Compilations:
    """How often XLA has compiled since the last look."""

    def __init__(self) -> None:
        self._count = 0

    def on_event(self, event: str, seconds: float, **_: Any) -> None:
        self._count += event == "/jax/core/compile/backend_compile_duration"

    def since(self) -> int:
        count, self._count = self._count, 0
        return count


@pytest.fixture
def compilations() -> Iterator[Compilations]:
    compilations = Compilations()
    jax.monitoring.register_event_duration_secs_listener(compilations.on_event)
    yield compilations
    jax.monitoring.unregister_event_duration_listener(compilations.on_event)


def is_marked(found: Any, expected: Any) -> bool:
    """Whether results are those of a marked program; they must be right either way."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    marked = bool(abs(found.ravel()[0] - expected.ravel()[0]) > MARK / 2)
    np.testing.assert_allclose(found, expected + MARK * marked, rtol=1e-6, atol=1e-6)
    return marked
