"""Kernels read, reduce, scan and sort what HLO says, and what does not is refused before it runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.emit import KernelRefused, emit
from jax_stitch.emit import kernel as emitter
from jax_stitch.emit.axes import axis_findings
from jax_stitch.kernel.model import Kernel
from jax_stitch.schedule.model import ScheduledKernel
from tests.kernel import programs
from tests.kernel.faults import AXES, PLANTED


@pytest.mark.every_case
@pytest.mark.parametrize("name", AXES)
def test_a_kernel_that_computes_something_else_is_refused(name: str) -> None:
    planted = AXES[name]
    scheduled = programs.scheduled(planted.program, planted.device)[0]
    good = programs.kernels(planted.program, planted.device)[0]
    assert not list(axis_findings(scheduled, good))
    assert list(axis_findings(scheduled, planted.plant(good))), name


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emitter that leaves out a barrier, wherever there is one."""
    usual = emitter.kernel_of

    def wrong(kernel: ScheduledKernel) -> Kernel:
        made = usual(kernel)
        try:
            return PLANTED["no barrier before a sort"].plant(made)
        except AssertionError:
            return made

    monkeypatch.setattr(emitter, "kernel_of", wrong)


def sorted_and_scaled(x: Any) -> Any:
    return jnp.sort(x, axis=-1) * 2 + x.sum(-1, keepdims=True)


X = np.random.default_rng(0).standard_normal((2048, 64)).astype(np.float32)


@pytest.mark.usefixtures("faulty")
def test_a_refused_kernel_is_left_to_xla_with_a_note() -> None:
    plan = stitch_jit(sorted_and_scaled).plan(X, device="h200")
    assert not any("ST_SORT" in k.source for k in plan.kernels)
    assert any("check of kernel" in note and "barrier" in note for note in plan.notes)


@pytest.mark.usefixtures("faulty")
def test_a_refused_kernel_does_not_run() -> None:
    found = stitch_jit(sorted_and_scaled)(X)
    np.testing.assert_allclose(found, jax.jit(sorted_and_scaled)(X), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("faulty")
def test_a_refused_kernel_is_an_error_in_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_STRICT", "1")
    with pytest.raises(KernelRefused, match="barrier"):
        stitch_jit(sorted_and_scaled).plan(X, device="h200")


def test_the_emitter_raises_where_a_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a kernel's text: nobody gets that of a refused one."""
    (scheduled,) = programs.scheduled("sort", "h200")
    wrong = PLANTED["an element written twice"].plant(programs.kernels("standardised", "h200")[0])
    monkeypatch.setattr(emitter, "kernel_of", lambda _: wrong)
    monkeypatch.setattr(emitter, "axis_findings", lambda *_: ())
    with pytest.raises(KernelRefused, match="written once"):
        emit(scheduled)
