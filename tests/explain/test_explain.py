"""``plan.explain`` on real programs: it agrees with the plan about every instruction."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.workloads import ALL
from jax_stitch import stitch_jit
from jax_stitch.inspect.explain import UnknownInstructionError
from jax_stitch.inspect.report.plan import Plan

WIDE = jax.ShapeDtypeStruct((2048, 1024), jnp.float32)


def head(x: jax.Array, w: jax.Array) -> Any:
    """Normalised, a product, a softmax: two kernels with a library call between them."""
    x = (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5)
    return jax.nn.softmax(x @ w, 1)


@pytest.fixture(scope="module")
def plan() -> Plan:
    found: Plan = stitch_jit(head).plan(WIDE, jax.ShapeDtypeStruct((1024, 512), jnp.float32), device="h200")
    return found


def test_every_stitched_instruction_is_said_to_be_in_its_kernel(plan: Plan) -> None:
    assert plan.kernels
    for kernel in plan.kernels:
        for name in kernel.ops:
            found = plan.explain(name)
            assert kernel.name in found.kernels and found.chosen is not None, name
            assert found.chosen.seconds == pytest.approx(
                found.chosen.memory + found.chosen.calls - found.chosen.penalty
            )


def test_every_boundary_has_its_reason(plan: Plan) -> None:
    assert plan.boundaries
    for boundary in plan.boundaries:
        found = plan.explain(boundary.instruction)
        assert not found.kernels and found.reason == boundary.reason and found.op == boundary.op


def test_stops_are_between_different_kernels_and_say_whether_we_joined_them(plan: Plan) -> None:
    """The two sums of each row that XLA has kernels of their own for, and the product that nobody fuses."""
    kernel_of = {name: k.name for k in plan.kernels for name in k.ops}
    stops = {s for k in plan.kernels for name in k.ops for s in plan.explain(name).stops}
    assert any(s.joined for s in stops), "XLA has several kernels where one is stitched"
    for stop in stops:
        same = kernel_of.get(stop.producer) is not None and kernel_of.get(stop.producer) == kernel_of.get(stop.consumer)
        assert stop.joined == same
        assert not stop.joined or "GEMM" not in stop.reason
    product = next(b.instruction for b in plan.boundaries if b.reason == "a library GEMM")
    assert all("GEMM" in s.reason for s in plan.explain(product).stops)


def test_candidates_are_others_and_lose(plan: Plan) -> None:
    """Each either cannot be a kernel, with the reason, or makes a plan that is predicted no faster."""
    seen = 0
    for kernel in plan.kernels:
        for name in kernel.ops:
            for candidate in plan.explain(name).candidates:
                assert name in candidate.instructions
                assert set(candidate.instructions) != set(kernel.ops)
                assert candidate.refused or candidate.behind is None or candidate.behind > -1e-9
                seen += 1
    assert seen


def test_a_kernel_of_xla_is_explained_by_its_last_instruction(plan: Plan) -> None:
    name = plan.kernels[0].xla_kernels[0]
    assert plan.explain(name).xla_kernel == name
    assert plan.explain(f"%{name}") == plan.explain(name)


def test_a_name_that_is_not_there_lists_those_that_are_close(plan: Plan) -> None:
    known = plan.kernels[0].ops[-1]
    with pytest.raises(UnknownInstructionError) as error:
        plan.explain(f"{known}x")
    assert known in str(error.value)


def test_it_prints_what_it_says(plan: Plan) -> None:
    text = str(plan.explain(plan.kernels[0].ops[0]))
    for part in (
        plan.kernels[0].ops[0],
        plan.kernels[0].name,
        "XLA's kernel for it",
        "candidates that hold it",
        "saves",
    ):
        assert part in text


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", ["group_norm_and_gradient", "word2vec", "cart_pole_concatenate"])
def test_every_instruction_of_a_workload_can_be_explained(name: str, device: str) -> None:
    """Of its kernels and of what is left to XLA; a plan made around a candidate is a plan like the others."""
    workload = ALL[name]
    function, shapes = workload.abstract(workload.test_sizes[0], jnp.float32)
    found: Plan = stitch_jit(function).plan(*shapes, device=device)
    inside = {op: k.name for k in found.kernels for op in k.ops}
    for instruction in [*list(inside)[::7], *dict.fromkeys(b.instruction for b in found.boundaries[:8])]:
        explained = found.explain(instruction)
        assert instruction not in inside or explained.kernels, instruction
        assert explained.kernels or explained.reason
        assert str(explained)


def test_instructions_of_loops_are_found_with_xlas_kernels_in_the_body() -> None:
    """A loop that is one kernel here; in XLA's body there are several, and all of them are joined."""
    workload = ALL["cart_pole_concatenate"]
    function, shapes = workload.abstract(workload.test_sizes[0], jnp.float32)
    found: Plan = stitch_jit(function).plan(*shapes, device="h200")
    lines = [line.split("=")[0].replace("ROOT", "").strip(" %") for line in found.hlo.splitlines() if " sine(" in line]
    explained = found.explain(lines[0])
    assert explained.op == "sine" and explained.inside in found.kernels[0].ops
    assert explained.kernels == (found.kernels[0].name,)
    assert explained.xla_kernel and explained.xla_kernel != explained.inside
    assert all(s.joined for s in explained.stops)


def test_what_was_never_planned_says_so() -> None:
    def mutating(x: jax.Array) -> jax.Array:
        held = jax.new_ref(x)
        held[...] += 1
        return held[...]

    found: Plan = stitch_jit(mutating).plan(jax.ShapeDtypeStruct((8,), jnp.float32), device="cpu")
    with pytest.raises(ValueError, match="nothing of mutating was planned"):
        found.explain("add.1")


def test_what_is_computed_tile_by_tile_is_said_to_be() -> None:
    """Catches operations of a loop over tiles that count as left to XLA."""
    array = jax.ShapeDtypeStruct((2, 1024, 8, 64), jnp.float32)
    found: Plan = stitch_jit(attention).plan(array, array, array, device="zen3")
    (kernel,) = (k for k in found.kernels if "a loop of" in k.source)
    products = {name for name in kernel.ops if found.explain(name).op == "dot"}
    assert len(products) == 2
    for name in products:
        assert "tile by tile" in found.explain(name).reason
        assert kernel.name in found.explain(name).kernels


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
