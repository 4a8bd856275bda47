"""Replaying XLA's own HLO, unstitched, must give what the function gives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.frontend import replay
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from tests.replay.programs import PROGRAMS, Program


def rebuilt(program: Program, device: str) -> list[Any]:
    """The results of the function replayed from a device's HLO, run here."""
    captured = capture(program.fun, program.args, devices.get(device))
    assert captured.unsupported is None
    built = graph.build(hlo_parser.parse(captured.text))
    graph.verify(built)
    assert replay.unsupported(built) == []
    run = replay.replay(replay.StitchedGraph(built))
    results = jax.jit(lambda *args: captured.unflatten(run(captured.flatten(args))))(*program.args)
    return jax.tree.leaves(results)


def assert_same(got: list[Any], want: list[Any], ulps: float) -> None:
    """Equal types and values, floats up to ``ulps`` of the largest magnitude in the array."""
    assert len(got) == len(want)
    for number, (g, w) in enumerate(zip(got, want, strict=True)):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"result {number}"
        g, w = np.asarray(g), np.asarray(w)
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w, err_msg=f"result {number}")
            continue
        wide, eps = np.complex128 if w.dtype.kind == "c" else np.float64, float(jax.numpy.finfo(w.dtype).eps)
        g, w = g.astype(wide), w.astype(wide)
        scale = np.max(np.abs(w[np.isfinite(w)]), initial=0)
        np.testing.assert_allclose(g, w, rtol=ulps * eps, atol=ulps * eps * scale, err_msg=f"result {number}")


LONG = ("gradients_of_factorisations", "random_gamma", "random_numbers")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else []) for n in PROGRAMS])
def test_cpu(name: str) -> None:
    program = PROGRAMS[name]
    with jax.enable_x64(program.x64):
        want = jax.tree.leaves(jax.jit(program.fun)(*program.args))
        assert_same(rebuilt(program, "cpu"), want, ulps=0 if program.exact else 16)


QUICK = ("cross_entropy_gradient_with_labels_out_of_range", "dropout", "layer_norm_gradient", "lstm_gradient", "sorts")


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, which compiles for a described GPU")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n, p in PROGRAMS.items() if p.portable]
)
def test_hlo_of_a_gpu(name: str) -> None:
    program = PROGRAMS[name]
    with jax.enable_x64(program.x64):
        want = jax.tree.leaves(jax.jit(program.fun)(*program.args))
        assert_same(rebuilt(program, "h200"), want, ulps=0 if program.exact else 256)
