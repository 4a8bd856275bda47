"""The step of a GPU session that launches kernels in each way there is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.gpu import launchers
from bench.gpu.steps import steps
from jax_stitch import devices
from jax_stitch.backend.compile import PtxKernel
from jax_stitch.backend.launch import direct
from jax_stitch.emit import KernelSource
from jax_stitch.graph.model import TensorType

X = [jnp.arange(4.0)]


def test_other_bits_are_seen() -> None:
    """Also in the last output, at a later call, and where values are equal: minus zero is not zero."""

    def right(x: jax.Array) -> tuple[jax.Array, ...]:
        return x, x * 2

    assert launchers.differing({"a": right, "b": right}, X) == ""
    assert "by b, call 1: output 1" in launchers.differing({"a": right, "b": lambda x: (x, x * 2 + 1)}, X)
    assert "by b, call 1: output 0" in launchers.differing({"a": lambda x: (x,), "b": lambda x: (-x,)}, [jnp.zeros(3)])
    later = iter((1.0, 1.0, 2.0))
    assert "by a, call 3: output 0" in launchers.differing({"a": lambda x: (x * next(later),)}, X)


def test_fewer_blocks_than_counted_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = TensorType("f32", (4,))
    source = KernelSource("k", "", (tensor,), (tensor,), 1, 256, 0)
    kernel = PtxKernel("k", "id", "sm_90", "", b"", 32, 0, 0, 0)

    class Loaded:
        blocks = 8

        @classmethod
        def of(cls, *_: Any) -> Any:
            return cls()

        @property
        def function(self) -> Any:
            return self

        def blocks_per_multiprocessor(self) -> int:
            return Loaded.blocks

    monkeypatch.setattr(direct, "Direct", Loaded)
    assert launchers.overcounted(kernel, source, devices.get("h200")) == ""
    Loaded.blocks = 7
    assert "8 blocks a multiprocessor are counted, the driver has 7" in launchers.overcounted(
        kernel, source, devices.get("h200")
    )


def test_inputs_are_of_the_kernels_types() -> None:
    types = tuple(TensorType(dtype, (3,)) for dtype in ("f32", "bf16", "s64", "pred", "f64"))
    found = launchers.inputs(KernelSource("k", "", types, (), 1, 32, 0))
    assert [str(np.asarray(x).dtype) for x in found] == ["float32", "bfloat16", "int64", "bool", "float64"]


def test_it_is_a_step_of_a_session_on_a_gpu_alone(tmp_path: Any) -> None:
    assert "launchers" in [s.name for s in steps("cuda", tmp_path, 540.0)]
    assert "launchers" not in [s.name for s in steps("cpu", tmp_path, 440.0)]
    assert launchers.answer({"name": "tiny"}, lambda stage: None)["verdict"] == "not here"
