"""Both programs' kernels over the same operations, counted on XLA's final program, by the user's names."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import networkx
import pytest

from bench.workloads import environments
from jax_stitch import stitch_jit
from jax_stitch.inspect.planned import NOWHERE, Operation
from jax_stitch.inspect.planned.final import stem
from jax_stitch.inspect.planned.names import inner_function, is_backward, place_of, scopes_of, title
from jax_stitch.inspect.planned.network import ARGUMENTS
from jax_stitch.inspect.planned.stops import kernel_stops
from jax_stitch.inspect.report.plan import Plan
from tests.page.plans import flax_step, layered, normalisation, normalisation_forward, of_workload


def test_what_is_one_kernel_in_xlas_final_program_replaces_one() -> None:
    """XLA makes one Triton kernel of a LayerNorm. Planned on a compilation without Triton, a plan said "replaces 4
    kernels" and promised what nobody gets.
    """
    plan = normalisation_forward()
    assert plan.xla_launches == 1
    for kernel in plan.program.after.kernels:
        assert sum(plan.program.before.kernels[b].launches for b in kernel.replaces) <= 1
    rows = [line.split() for line in str(plan).splitlines() if line.strip().startswith("stitch_0")]
    if plan.kernels:
        assert len(plan.kernels[0].xla_kernels) == 1
        assert rows[0][1] == "1" and "Nothing is gained" in str(plan)


def test_every_kernel_of_xla_that_goes_is_counted_once() -> None:
    """Launches before, less those replaced, plus the stitched ones, are the launches after."""
    plan = normalisation()
    program = plan.program
    gone = [b for k in program.after.kernels for b in k.replaces]
    assert len(gone) == len(set(gone)) == plan.xla_launches  # 7 under jax 0.10, 5 under 0.11
    assert sum(k.launches for k in program.after.kernels) == plan.launches == 1
    assert sum(k.launches for k in program.before.kernels) == plan.xla_launches > 1


@pytest.mark.parametrize("scanned_last", [True, False])
def test_the_table_and_the_verdict_have_one_baseline(scanned_last: bool) -> None:
    """XLA does a scan in steps without its name. Where nothing read them but the result, they were not counted: a line
    said "replaces 1" below "6 launches of XLA become 1".
    """

    def scanned(x: jax.Array) -> tuple[jax.Array, ...]:
        shares = jnp.cumsum(jax.nn.softmax(x, -1), -1)
        return (x.max(-1), shares) if scanned_last else (shares, x.max(-1))

    plan = stitch_jit(scanned).plan(jax.ShapeDtypeStruct((1024, 4096), jnp.float32), device="h200")
    assert plan.launches == 1 < plan.xla_launches
    (kernel,) = plan.program.after.kernels
    assert plan.replaced(kernel) == str(plan.xla_launches)
    assert plan.verdict().startswith(f"{plan.xla_launches} launches of XLA become 1")


def test_what_kernels_copy_is_not_xlas_any_more() -> None:
    """Single numbers and the like, which each kernel makes for itself, looked like kernels left to XLA."""
    plan = flax_step()
    launches = sum(k.launches for k in plan.program.after.kernels)
    assert plan.launches <= launches <= plan.launches + 2
    copied = {name for k in plan.kernels for name in k.copies}
    assert copied, "that is what is tested"


def test_what_operations_are_given_adds_up_to_their_kernels() -> None:
    """Shares of lines are sums of these: what is lost or counted twice would show as a wrong percentage."""
    program = normalisation().program
    for side in (program.before, program.after):
        assert all(k.members for k in side.kernels)
        assert sum(side.op_bytes) == pytest.approx(sum(k.bytes for k in side.kernels))
        assert sum(side.op_seconds) == pytest.approx(side.seconds)
        for n, kernel in enumerate(side.kernels):
            assert {i for i, k in enumerate(side.kernel_of) if k == n} <= set(kernel.members)
            assert kernel.bound <= kernel.bytes


@pytest.fixture(scope="module")
def loop() -> Plan:
    return of_workload(environments.WORKLOADS, "cart_pole")


def test_the_body_of_a_loop_is_in_its_kernel(loop: Plan) -> None:
    """A loop that is one kernel would otherwise look as if XLA still ran its steps."""
    program = loop.program
    inside = [i for i, o in enumerate(program.operations) if o.parent != NOWHERE and not o.free]
    assert len(inside) > 40
    assert {program.after.kernel_of[i] for i in inside} == {0}
    assert {o.trips for o in program.operations if o.parent != NOWHERE} == {10_000}
    (kernel,) = program.after.kernels
    assert kernel.bound == pytest.approx(loop.bound_bytes, rel=0.05), "each trip's slices, not one of them"
    assert loop.replaced(kernel) == f"{loop.xla_launches:,}", "also copies of the carry, and the loop's condition"


def test_a_plan_of_no_program_has_none() -> None:
    empty = Plan(
        "f",
        normalisation().device,
        (),
        (),
        0,
        "",
        lambda: normalisation().xla_traffic,
        lambda: normalisation().xla_traffic,
    )
    assert empty.program.operations == () and empty.program.before.kernels == ()


def test_stops_are_between_kernels_of_the_final_program() -> None:
    plan = normalisation()
    program = plan.program
    found = list(kernel_stops(program, plan.device, 10.0))
    assert found
    for stop in found:
        reader = program.before.kernel_of[stop.consumer]
        assert stop.producer not in program.before.inside[reader], "it computes that itself"
        assert stop.joined and stop.reason and stop.pass_


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("mul.40.7.clone.1", "mul.40"),
        ("mul.40", "mul.40"),
        ("reduce_sum.77.1.remat2", "reduce_sum.77"),
        ("exp", "exp"),
        ("multiply.6.1#2", "multiply.6"),
    ],
)
def test_names_before_xla_copied_the_instruction(name: str, same: str) -> None:
    assert stem(name) == same


@pytest.mark.parametrize(
    ("scope", "user", "backward"),
    [
        ("jvp(Model)/encoder/LayerNorm_1", ("Model", "encoder", "LayerNorm_1"), False),
        ("transpose(jvp(Model))/encoder/LayerNorm_1", ("Model", "encoder", "LayerNorm_1"), True),
        ("transpose(jvp())", (), True),
        ("jvp(Model)/Dropout_0/jit(_bernoulli)/jit(_uniform)", ("Model", "Dropout_0"), False),
        ("vmap(jvp(a))/while/body/closed_call/step", ("a", "step"), False),
        ("Model/Model.__call__/Dense_0", ("Model", "Dense_0"), False),
        ("jvp(a/b)/c", ("a/b", "c"), False),
        ("", (), False),
    ],
)
def test_scopes_in_the_users_words(scope: str, user: tuple[str, ...], backward: bool) -> None:
    assert scopes_of(scope) == user and is_backward(scope) == backward


def test_functions_of_libraries() -> None:
    assert inner_function("jvp(M)/Dropout_0/jit(_bernoulli)/jit(_uniform)") == "jvp(M)/Dropout_0/jit(_bernoulli)"
    assert inner_function("jvp(M)/Dense_0") == ""


def operation(scope: str, source: str) -> Operation:
    return Operation("a", "add", "f32[8]", 32, 8, (), source, scope, NOWHERE, 1, False, False)


def test_kernels_are_named_by_what_the_user_wrote() -> None:
    backward = [(operation("transpose(jvp(LayerNorm_1))", f"/home/x/model.py:{line}"), 1.0) for line in (12, 13, 14)]
    assert title(backward, "fusion.3") == "LayerNorm_1 backward, model.py:12-14"
    both = [*backward, (operation("jvp(Dense_0)", "/home/x/layers.py:3"), 5.0)]
    assert title(both, "fusion.3") == "Dense_0 + LayerNorm_1 forward and backward, layers.py:3 and 1 more file"
    assert title([(operation("", ""), 1.0)], "fusion.3") == "fusion.3"


def test_without_scopes_the_function_around_the_line_names_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text("def outer(x):\n    def update(p):\n        return p + 1\n    return update(x)\n", encoding="utf-8")
    assert title([(operation("", f"{file}:3"), 1.0)], "k") == "update, model.py:3"


def test_a_place() -> None:
    assert place_of("C:/a.py:12") == ("C:/a.py", 12) and place_of("<stdin>") == ("", 0) and place_of("") == ("", 0)


def test_the_graph_of_operations() -> None:
    plan = normalisation()
    graph = plan.to_networkx()
    assert networkx.is_directed_acyclic_graph(graph) and len(graph) == len(plan.program.operations)
    numbers = {"launches": 1, "xla_launches": plan.xla_launches, "planner": "beam"}
    assert numbers.items() <= graph.graph.items()
    kernel = plan.kernels[0].name
    work = {name for name, free in graph.nodes(data="free") if not free}
    assert {graph.nodes[name]["kernel"] for name in work} == {kernel}
    assert sum(graph.nodes[name]["bytes_moved"] for name in work) == pytest.approx(plan.program.after.kernels[0].bytes)
    inner = [(a, b) for a, b in graph.edges if a in work and b in work]
    assert not any(graph.edges[e]["memory"] for e in inner), "one kernel: nothing between its operations is in memory"
    assert any(graph.edges[e]["xla_memory"] for e in inner)


def test_the_graphs_of_kernels() -> None:
    plan = normalisation()
    before = plan.to_networkx("xla_kernels")
    assert len(before) == 1 + plan.xla_launches and ARGUMENTS in before and networkx.is_directed_acyclic_graph(before)
    assert sum(n for _, n in before.nodes(data="launches", default=0)) == plan.xla_launches
    after = plan.to_networkx(of="kernels")
    (kernel,) = set(after) - {ARGUMENTS}
    assert set(after.nodes[kernel]["replaces"]) == set(before) - {ARGUMENTS}
    with pytest.raises(ValueError, match="'kernels'"):
        plan.to_networkx("kernel")


def test_two_planners_side_by_side() -> None:
    found = normalisation().diff(normalisation("span"))
    assert found.names == ("beam", "span")
    (change,) = found.changes
    assert change.what == "split" and change.left == (0,) and len(change.right) == 4
    assert "split" in str(found) and "4 launches" in found.verdict() and "span" in found._repr_html_()
    back = normalisation("span").diff(normalisation())
    assert [c.what for c in back.changes] == ["merged"]
    assert found.to_dict()["changes"][0]["left"] == [normalisation().kernels[0].name]


def test_two_devices_and_a_plan_and_itself() -> None:
    found = normalisation().diff(normalisation(device="a100"))
    assert found.names == ("h200", "a100") and [c.what for c in found.changes] != ["cut otherwise"]
    same = normalisation().diff(normalisation())
    assert same.verdict() == "Both have the same kernels." and [c.what for c in same.changes] == ["the same"]
    assert "split" not in str(same)


def test_alike_layers_do_not_mix_in_a_diff(tmp_path: Path) -> None:
    """Kernels of twelve layers share their names: told by these, each would be paired with the first."""
    plan = layered(tmp_path, layers=3, parts=6)
    found = plan.diff(layered(tmp_path, layers=3, parts=6))
    assert [(c.what, c.left == c.right) for c in found.changes] == [("the same", True)] * 6


def test_a_loops_condition_is_there_too() -> None:
    """A stitched kernel in the condition of a loop would have no operations."""

    def grown(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda y: y.sum() < 1e6, lambda y: y * 1.5 + jnp.sin(y), x)

    plan = stitch_jit(grown).plan(jax.ShapeDtypeStruct((64, 128), jnp.float32), device="h200")
    inside = [o for o in plan.program.operations if o.parent != NOWHERE]
    assert {"reduce", "sine"} <= {o.op for o in inside}
    assert all(k.members for k in plan.program.after.kernels if k.kind == "stitched")
