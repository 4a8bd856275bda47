"""Loops in teams of threads: equal to XLA's with the CPU's schedule, the H200's, and as CUDA runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_parser
from bench.workloads import environments, loop_programs
from jax_stitch import devices, graph, stitch_jit
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.backend.compile import NvrtcMissing, compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion.graph_passes import EXPANDING
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.cost import team_cost
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced
from tests.loops import block_programs as programs
from tests.loops.block_programs import normal
from tests.some import some

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lstm": (programs.lstm, programs.lstm_arguments(6, 20, 7)),
    "lstm_batch_of_1": (programs.lstm, programs.lstm_arguments(1, 33, 5)),
    "lstm_batch_of_37": (programs.lstm, programs.lstm_arguments(37, 12, 4)),
    "gru": (programs.gru, programs.gru_arguments(4, 20, 9)),
    "bidirectional": (programs.bidirectional, programs.bidirectional_arguments(6, 18, 9)),
    "lstm_gradient": (programs.lstm_gradient, programs.lstm_arguments(6, 20, 7)),
    "gru_gradient": (programs.gru_gradient, programs.gru_arguments(4, 20, 9)),
    "bidirectional_gradient": (programs.bidirectional_gradient, programs.bidirectional_arguments(6, 18, 9)),
    "transposed_weights": (programs.transposed_weights, (normal(9, 1, 6), normal(70, 6), normal(70, 70))),
    "exchanged": (programs.exchanged, (normal(4, 70), normal(4, 70), normal(70, 70))),
    "half_precision": (programs.half_precision, (normal(9, 4, 70), normal(4, 70), normal(70, 70).astype(jnp.bfloat16))),
    "logistic_regression": (programs.logistic_regression, programs.logistic_regression_arguments(20, 70, 33)),
    "perceptron": (programs.perceptron, programs.perceptron_arguments(20, 8, 18, 33, 5)),
    "word2vec": (programs.word2vec, programs.word2vec_arguments(9, 7, 12, 33, 3)),
    "sinkhorn": (programs.sinkhorn, (jnp.abs(normal(70, 70, scale=1.0)),)),
    "sinkhorn_in_logarithms": (programs.sinkhorn_in_logarithms, (jnp.abs(normal(70, 70, scale=1.0)),)),
    "power_iteration": (programs.power_iteration, (normal(70, 70), normal(70))),
    "viterbi": (programs.viterbi, (normal(70), normal(70, 70, scale=1.0), normal(12, 4, 70, scale=1.0))),
    "ctc": (programs.ctc, programs.ctc_arguments(12, 4, 9, 35)),
}

SMALL = forced.device("h200", multiprocessors=2, shared_per_block=1024, shared_per_block_optin=1024)
"""Little shared memory, few blocks: the arrays of a team go to global memory, and a team does several rows."""

SPREAD = forced.device("h200", multiprocessors=3)
"""One on which every loop that has a single team's work for two or three blocks is spread over them."""

TARGETS = {"cpu": devices.get("cpu"), "h200": devices.get("h200"), "small": SMALL, "spread": SPREAD}


def planned(name: str, target: Any) -> Stitched:
    """The kernels for a target, whether or not they are worth it, from XLA's HLO for this CPU."""
    function, args = CASES[name]
    alone = mock.patch.object(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {}))
    gain = mock.patch.object(team_choice, "SPREAD_GAIN", 0.0 if target is SPREAD else 1e9)
    meeting = mock.patch.object(team_cost, "GRID_BARRIER_SECONDS", 0.0)
    worth = mock.patch.multiple(team_cost, team_seconds=lambda *_: 0.0, CALL_SECONDS=0.0)
    # The small products of these sizes stand for larger ones.
    products = mock.patch.object(EXPANDING["expand-small-products"], "needs", lambda _: False)
    with alone, gain, meeting, worth, products:
        return stitch_capture(capture(function, args, devices.get("cpu")), target)


def teams(made: Stitched) -> list[TeamLoop]:
    return [p.team.loop for k in made.kernels for p in k.scheduled.parts if p.team is not None]


def assert_equals_xla(name: str, got: Sequence[np.ndarray]) -> None:
    function, args = CASES[name]
    for a, b in zip(got, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        if jnp.issubdtype(b.dtype, jnp.floating):
            tolerance = 2e-2 if b.dtype == jnp.bfloat16 else 2e-5
            scale = float(np.abs(np.asarray(b, np.float64)).max())
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 0, tolerance * scale)
        else:
            np.testing.assert_array_equal(a, b)


def check(name: str, made: Stitched) -> None:
    assert_equals_xla(name, forced.run(made, jax.tree.leaves(CASES[name][1])))


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("name", CASES)
def test_equals_xla(name: str, target: str) -> None:
    """A product's operand of another row or step, a piece written to the wrong place, a sum started wrong."""
    made = planned(name, TARGETS[target])
    assert teams(made), str(made.plan)
    check(name, made)


@pytest.mark.parametrize("target", ["h200", "small"])
@pytest.mark.parametrize("name", ["lstm", "exchanged", "gru_gradient", "sinkhorn", "perceptron", "word2vec", "viterbi"])
def test_as_cuda_runs_them(name: str, target: str) -> None:
    """A barrier too few, a value overwritten while another thread reads it, a wrong lane of a shuffle."""
    checked = check_function(planned(name, TARGETS[target]), jax.tree.leaves(CASES[name][1]))
    assert not checked.errors, str(checked)
    assert_equals_xla(name, checked.results)


@pytest.mark.parametrize("name", ["lstm", "gru", "exchanged", "lstm_gradient", "sinkhorn", "perceptron", "viterbi"])
def test_spread_over_blocks(name: str) -> None:
    """A place that no block has, or two have; a value that another block reads before all are at the barrier."""
    made = planned(name, SPREAD)
    assert any(loop.blocks > 1 for loop in teams(made)), str(made.plan)
    check(name, made)
    checked = check_function(made, jax.tree.leaves(CASES[name][1]))
    assert not checked.errors, str(checked)
    assert_equals_xla(name, checked.results)


@pytest.mark.parametrize("name", ["lstm_gradient", "half_precision", "perceptron", "word2vec", "viterbi"])
def test_compiles_for_gpus(name: str) -> None:
    """What a host compiler takes and NVIDIA's does not."""
    for kernel in planned(name, devices.get("h200")).kernels:
        for sm in ("sm_80", "sm_90"):
            try:
                assert compile_ptx(kernel.source, sm).ptx
            except NvrtcMissing as missing:
                pytest.skip(str(missing))


def test_updates_outside_a_table_are_dropped() -> None:
    """Data that points past the end, written to whatever lies there."""

    def add(table: Any, at: Any, update: Any) -> Any:
        return jax.lax.scan(lambda t, x: (t.at[x[0]].add(x[1], mode="drop"), None), table, (at, update))[0]

    at = jnp.asarray([[0, 69, 70], [70, -1, 3], [-71, 5, 2**31 - 1]])
    with mock.patch.dict(CASES, {"add": (add, (normal(70, 70), at, normal(3, 3, 70)))}):
        made = planned("add", devices.get("h200"))
        assert teams(made)
        check("add", made)


def test_scratch_holds_what_shared_memory_does_not() -> None:
    made = planned("perceptron", SMALL)
    (source,) = [k.source for k in made.kernels if k.source.scratch]
    assert source.shared_bytes <= SMALL.shared_per_block_optin


def test_a_sum_over_the_batch_makes_one_team() -> None:
    """Rows that need each other's values must not be given to blocks that do not wait for each other."""

    def coupled(h: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w) - h.mean(0), None), h, None, length=5)[0]

    with mock.patch.dict(CASES, {"coupled": (coupled, (normal(8, 70), normal(70, 70)))}):
        made = planned("coupled", devices.get("h200"))
        assert [loop.rows for loop in teams(made)] == [1]
        check("coupled", made)


def test_text_does_not_grow_with_steps_or_sizes() -> None:
    """A body that is written out element by element takes the compiler minutes."""

    def size(steps: int, hidden: int) -> int:
        cell = (programs.lstm, programs.lstm_arguments(4, hidden, steps))
        with mock.patch.dict(CASES, {"cell": cell}):
            return len(planned("cell", devices.get("h200")).kernels[0].source.text)

    assert size(1000, 64) < 1.1 * size(10, 16)


@pytest.mark.parametrize("name", ["lstm_gradient", "gru_gradient", "bidirectional_gradient"])
def test_gradients_of_weights_are_summed_after_the_loop(name: str) -> None:
    """Each team with all weight gradients in its hands, or the loop left to XLA for their sake."""
    made = planned(name, devices.get("h200"))
    graph.verify(made.plan.graph)
    loops = [loop for loop in teams(made) if loop.carried]
    assert len(loops) == sum(n.op == "while" for n in made.plan.graph.nodes)
    assert all(loop.rows > 1 for loop in loops)
    assert any(n.op == "dot" for n in made.plan.graph.nodes)


FORMS = ["tbi,tbj->ij", "tbi,tbj->ji", "tbi,tbj->tij", "tbi,tbj->bij", "tbj->j", "tbj->b"]


@settings(max_examples=some(2, of=6), deadline=None)
@given(data=st.data())
def test_sums_over_steps_in_tiles(data: st.DataObject) -> None:
    """A tile that ends in another's, a run of a sum left out or added twice, an operand read transposed."""
    steps, batch, left, right = (data.draw(st.integers(2, most)) for most in (40, 6, 70, 70))
    form = data.draw(
        st.sampled_from(["tbi,tbj->ij", "tbi,tbj->ji", "tbi,tbj->tij", "tbi,tbj->bij", "tbj->j", "tbj->b"])
    )
    dtype = data.draw(st.sampled_from([jnp.float32, jnp.bfloat16]))

    def run(h: Any, w: Any, x: Any) -> Any:
        # Nothing negative: rounding shows as such, not as what is left where a sum cancels.
        ys = jax.lax.scan(lambda h, x: ((h := jax.nn.sigmoid(h @ w + x.sum())), h), h, x)[1]
        return jnp.einsum(form, *((jnp.abs(x), ys) if "," in form else (ys,)))

    args = normal(batch, right), normal(right, right), normal(steps, batch, left)
    args = tuple(a.astype(dtype) for a in args)
    with mock.patch.dict(CASES, {"sums": (run, args)}):
        made = planned("sums", devices.get("h200"))
        assert any(not loop.carried for loop in teams(made)) or dtype == jnp.bfloat16
        (got,) = forced.run(made, args)
    with jax.enable_x64(True):  # XLA adds up in bfloat16 what we add up in float32.
        exact = np.asarray(jax.jit(run)(*(jnp.asarray(np.asarray(a, np.float64)) for a in args)))
    error, plain = (np.abs(np.asarray(r, np.float64) - exact).max() for r in (got, jax.jit(run)(*args)))
    assert error <= max(2 * plain, (2e-2 if dtype == jnp.bfloat16 else 2e-5) * exact.max())


def test_cheap_operations_before_a_loop_are_done_in_it() -> None:
    """An array written and read for the sake of a multiplication."""
    made = planned("bidirectional_gradient", devices.get("h200"))
    loops = [n for n in made.plan.graph.nodes if n.op == "while"]
    assert not any(made.plan.graph[o].op in ("multiply", "slice") for n in loops for o in n.operands)


def test_directions_of_a_recurrent_net_share_a_launch() -> None:
    made = planned("bidirectional", devices.get("h200"))
    (kernel,) = [k for k in made.kernels if any(p.team for p in k.scheduled.parts)]
    assert [p.split.blocks for p in kernel.scheduled.parts if p.team] == [6, 6]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("steps", [100, 10_000])
def test_products_are_not_written_out_for_each_row(device: str, steps: int) -> None:
    """A text of thousands of multiplications, for which compilers take a minute and that no registers hold; or one
    that grows with the steps.
    """
    shapes = [(16, 32), (steps, 16, 16), (32, 32), (16, 32)]
    args = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    built = graph.build(hlo_parser.parse(capture(loop_programs.recurrent, args, devices.get("cpu")).text))
    found = loop_patterns.stitched_loops(built, devices.get(device))
    assert [isinstance(p.loop, TeamLoop) for p in found.patterns] == [True]


@pytest.mark.parametrize("name", ["cart_pole_rng", "lorenz", "discounted_rewards"])
def test_kernels_do_not_grow_with_the_steps(name: str) -> None:
    """A compile time in proportion to how long a loop runs."""
    (workload,) = (w for w in environments.WORKLOADS if w.name == name)

    def size(steps: int) -> tuple[int, ...]:
        """Lines of each kernel."""
        function, args = workload.make((64, steps), jnp.float32)
        plan = stitch_jit(function).plan(*args, device="cpu")
        assert plan.kernels
        return tuple(k.source.count("\n") for k in plan.kernels)

    assert size(100) == size(10_000)


def test_a_large_product_stays_a_library_call() -> None:
    """One block per row reads all weights from the level-2 cache, where a matrix unit takes a fraction of the time."""
    x, w = jax.ShapeDtypeStruct((512, 2048), jnp.float32), jax.ShapeDtypeStruct((2048, 2048), jnp.float32)

    def body(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=100)[0]

    built = graph.build(hlo_parser.parse(capture(body, (x, w), devices.get("cpu")).text))
    found = loop_patterns.stitched_loops(built, devices.get("h200"))
    assert not found.patterns
    assert any("faster as XLA's kernels" in reason for reason in found.refused.values())
