"""Why XLA stopped between two kernels: each rule on the smallest graph that meets it, and on one that does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jax_stitch import devices
from jax_stitch.graph.model import Graph
from jax_stitch.inspect.explain.rules import FUSION_MERGER, INSTRUCTION_FUSION, Kernels, stops, why
from jax_stitch.util.values import replace
from tests.fusion import forced

H200 = devices.get("h200")
X = "x = f32[64,32] parameter(0)"


def graph(*lines: str, kernels: Mapping[str, str] | None = None) -> Graph:
    """Each operation is a kernel by itself, but for those that ``kernels`` puts together."""
    computation = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}"
    built = forced.graph_from("\n".join((X, *lines)), computation)
    named = kernels or {}
    return replace(built, nodes=tuple(replace(n, kernel=named.get(n.name, n.kernel)) for n in built.nodes))


def reason(built: Graph, producer: str, consumer: str) -> tuple[str, str]:
    by_name = {n.name: n for n in built.nodes}
    return why(Kernels(built, H200), by_name[producer], by_name[consumer])


def test_a_library_call() -> None:
    built = graph("w = f32[32,8] parameter(1)", "e = f32[64,32] exponential(x)",
                  "ROOT d = f32[64,8] dot(e, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}")  # fmt: skip
    assert "d is a library GEMM" in reason(built, "e", "d")[1]


def test_a_custom_call() -> None:
    built = graph('c = f32[64,32] custom-call(x), custom_call_target="somebody"', "ROOT n = f32[64,32] negate(c)")
    assert "c is a library call" in reason(built, "c", "n")[1]


def test_a_reduction_in_the_middle() -> None:
    built = graph("z = f32[] constant(0)", "r = f32[64] reduce(x, z), dimensions={1}, to_apply=add",
                  "ROOT n = f32[64] negate(r)")  # fmt: skip
    found = reason(built, "r", "n")
    assert found[0] == INSTRUCTION_FUSION and "a reduction in the middle: it is r" in found[1]


def test_what_comes_after_a_reduction_in_its_kernel() -> None:
    lines = ("z = f32[] constant(0)", "r = f32[64] reduce(x, z), dimensions={1}, to_apply=add",
             "n = f32[64] negate(r)", "ROOT a = f32[64] floor(n)")  # fmt: skip
    built = graph(*lines, kernels={"r": "k", "n": "k"})
    assert "n comes after r" in reason(built, "n", "a")[1]


def test_a_concatenate_with_several_users() -> None:
    lines = ("c = f32[128,32] concatenate(x, x), dimensions={0}", "n = f32[128,32] negate(c)")
    several = graph(*lines, "ROOT a = f32[128,32] add(n, c)", kernels={"n": "k", "a": "l"})
    assert "a concatenate with 2 users" in reason(several, "c", "n")[1]
    one = graph(*lines[:1], "ROOT n = f32[128,32] negate(c)")
    assert "concatenate" not in reason(one, "c", "n")[1]


def test_an_expensive_operation_with_several_users() -> None:
    lines = ("e = f32[64,32] exponential(x)", "n = f32[64,32] negate(e)", "a = f32[64,32] abs(e)",
             "ROOT t = (f32[64,32], f32[64,32]) tuple(n, a)")  # fmt: skip
    found = reason(graph(*lines), "e", "n")
    assert found[0] == FUSION_MERGER
    assert "the expensive exponential e would be computed in each of the 2 kernels" in found[1]


def test_an_expensive_operation_that_is_repeated() -> None:
    built = graph("v = f32[64] parameter(1)", "e = f32[64] exponential(v)",
                  "b = f32[64,32] broadcast(e), dimensions={0}", "ROOT p = f32[64,32] add(b, x)",
                  kernels={"b": "k", "p": "k"})  # fmt: skip
    assert "would be computed 32 times for each value" in reason(built, "e", "b")[1]


def test_multiple_users_with_what_it_would_cost() -> None:
    """Cheap work: each user would read both inputs, 2 x 8,192 bytes, once more; its result is 8,192."""
    lines = ("y = f32[64,32] parameter(1)", "s = f32[64,32] add(x, y)", "n = f32[64,32] negate(s)",
             "a = f32[64,32] abs(s)", "ROOT t = (f32[64,32], f32[64,32]) tuple(n, a)")  # fmt: skip
    found = reason(graph(*lines), "s", "n")
    assert found[0] == FUSION_MERGER and "multiple users: each of 2 kernels" in found[1]
    assert "16.4 kB in all besides" in found[1] and "24.6 kB of its results" in found[1]


def test_a_cycle() -> None:
    lines = ("w = f32[32,32] parameter(1)", "n = f32[64,32] negate(x)",
             "d = f32[64,32] dot(n, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
             "ROOT s = f32[64,32] add(n, d)")  # fmt: skip
    assert "a cycle: d comes after" in reason(graph(*lines), "n", "s")[1]


@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_the_parameter_limit(device: str) -> None:
    count = 100
    lines = [f"p{k} = f32[64,32] parameter({k})" for k in range(1, count)]
    lines += ["sum1 = f32[64,32] add(x, p1)"]
    lines += [f"sum{k} = f32[64,32] add(sum{k - 1}, p{k})" for k in range(2, count)]
    lines += [f"ROOT n = f32[64,32] negate(sum{count - 1})"]
    built = graph(*lines, kernels={f"sum{k}": "k" for k in range(1, count)})
    by_name = {n.name: n for n in built.nodes}
    found = why(Kernels(built, devices.get(device)), by_name[f"sum{count - 1}"], by_name["n"])[1]
    assert ("the parameter limit: together they have 101 operands and results" in found) == (device == "h200")


def test_only_what_is_between_kernels_is_a_stop() -> None:
    lines = ("e = f32[64,32] exponential(x)", "n = f32[64,32] negate(e)", "ROOT a = f32[64,32] floor(n)")
    built = graph(*lines, kernels={"e": "k", "n": "k"})
    by_name = {n.name: n.id for n in built.nodes}
    kernels, together = Kernels(built, H200), {by_name["n"]: frozenset({by_name["a"]})}
    assert not list(stops(kernels, by_name["e"], together))
    (stop,) = stops(kernels, by_name["n"], together)
    assert (stop.producer, stop.consumer, stop.joined, stop.bytes) == ("n", "a", True, 4 * 64 * 32)
