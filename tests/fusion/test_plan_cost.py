"""Predicted launches and bytes, on programs where they can be told by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.fusion import FusionPlan, explore
from jax_stitch.fusion.piece import cut_out
from jax_stitch.fusion.pieces import LARGEST_WHOLE
from jax_stitch.fusion.plan_cost import Prediction, predicted
from jax_stitch.fusion.prologues import prologues
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.values import replace
from tests.fusion import forced

H200 = forced.device("h200")
ROWS, COLUMNS = 4096, 1024
X = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)
SIZE = 4 * ROWS * COLUMNS


def test_one_kernel_reads_and_writes_once() -> None:
    made = predicted(explore(forced.graph_of(lambda x: jax.nn.softmax(x, 1), X), H200), H200)
    assert (made.launches, made.bytes) == (1, 2 * SIZE)
    assert made.seconds == pytest.approx(H200.target.launch_seconds + 2 * SIZE / H200.memory_bandwidth)


def test_what_is_left_to_xla_is_counted_too() -> None:
    """Each operation of HLO before XLA's passes is a kernel of its own; a product is none of ours, nor is a reshape of
    no kernel.
    """
    graph = forced.graph_of(lambda x, w: jnp.exp(jnp.tanh(x) @ w), X, jax.ShapeDtypeStruct((COLUMNS, 8), jnp.float32))
    made = predicted(explore(graph, H200, PlannerName.NONE), H200)
    assert (made.launches, made.bytes) == (2, 2 * SIZE + 2 * 4 * ROWS * 8)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    def run(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 7, lambda _, y: jnp.sort(y, 1) * 2, x)

    made = predicted(explore(forced.graph_of(run, X), H200, PlannerName.NONE), H200)
    once = predicted(explore(forced.graph_of(lambda x: jnp.sort(x, 1) * 2, X), H200, PlannerName.NONE), H200)
    assert once.bytes == 4 * SIZE and 7 * once.bytes <= made.bytes < 7.01 * once.bytes


def test_what_is_counted_worse_is_not_taken_for_an_estimate() -> None:
    usual = Prediction(2, 100, 3.0, 2.0)
    assert Prediction(3, 90, 2.0, 2.0).is_better_than(usual) and Prediction(1, 110, 2.0, 2.0).is_better_than(usual)
    assert not Prediction(3, 110, 2.0, 2.0).is_better_than(usual)
    assert not Prediction(1, 90, 3.0, 1.0).is_better_than(usual)
    assert Prediction(3, 110, 2.0, 1.0).is_better_than(usual)  # It leaves less of the device idle.


def test_few_launches_are_not_bought_with_an_idle_device() -> None:
    """Gradients clipped by their global norm, of more tensors than the search sees at once: one block can hold all."""

    def clipped(*tensors: jax.Array) -> list[jax.Array]:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(t)) for t in tensors))
        scale = jnp.minimum(1.0, 1.0 / norm)
        return [jnp.tanh(jnp.exp(t * scale) + 1.0) * 0.5 - t for t in tensors]

    tensors = [jax.ShapeDtypeStruct((64, 96), jnp.float32)] * 90
    graph = forced.graph_of(clipped, *tensors)
    assert len(graph) > LARGEST_WHOLE
    plan = explore(graph, H200)
    assert len(plan.kernels) <= 3
    assert max(sum(p.rows for p in kernel) for kernel in plan.kernels) >= 90 * 64
    assert predicted(plan, H200).seconds < 4 * H200.target.launch_seconds


PROLOGUE = """
  %x = f32[512,256]{1,0} parameter(0)
  %y = f32[512,256]{1,0} parameter(1)
  %w = f32[256,64]{1,0} parameter(2)
  %a = f32[512,256]{1,0} exponential(%x)
  %b = f32[512,256]{1,0} tanh(%y)
  %c = f32[1024,256]{1,0} concatenate(%a, %b), dimensions={0}
  ROOT %d = f32[1024,64]{1,0} dot(%c, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def test_a_piece_counts_what_a_product_reads() -> None:
    """The product itself is outside the piece; what XLA makes inside its kernel is no launch."""
    graph = forced.graph_from(PROLOGUE)
    names = {n.name: n.id for n in graph.nodes}
    inside = tuple(replace(n, kernel="product") if n.name in ("c", "d") else n for n in graph.nodes)
    graph = replace(graph, nodes=inside)
    piece = cut_out(graph, [names[n] for n in "abc"], [])
    alone = predicted(FusionPlan(piece.graph, (), (), {}), H200)
    whole = predicted(FusionPlan(graph, (), (), {}), H200)
    assert (alone.launches, alone.bytes) == (whole.launches, whole.bytes) == (2, 4 * 4 * 512 * 256)
    for g, taken in ((graph, [names["c"]]), (piece.graph, [piece.local[names["c"]]])):
        assert prologues(g, taken) == frozenset(taken)
        assert not prologues(g, [i - 1 for i in taken])
