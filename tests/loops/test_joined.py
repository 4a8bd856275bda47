"""Numbers that are computed alike, joined to arrays: loops over long lists of scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices
from jax_stitch.frontend.capture import Capture, capture
from jax_stitch.graph import Graph, build, verify
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.rewrites.alike import LEAST
from jax_stitch.loops.rewrites.joined import with_joined_numbers
from jax_stitch.loops.teams.team import NotForTeams
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.util.values import replace
from tests.fusion import forced
from tests.kernel.agreement import assert_close, interpreted

CPU = devices.get("cpu")
N = LEAST + 4

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(seed: int, *dims: int) -> Any:
    return np.random.default_rng(seed).standard_normal(dims) * 0.5


def ring(lanes: int = N, steps: int = 6) -> Made:
    """The gradient through a scan of scalars, each coupled to its neighbour; the first is seen besides."""

    def loss(params: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            pairs = zip(carry, carry[1:] + carry[:1], params, strict=True)
            after = [a + 0.1 * (jnp.tanh(p * b) - 0.5 * a * x) for a, b, p in pairs]
            return after, after[0]

        last, seen = jax.lax.scan(step, [p * 0.5 for p in params], xs)
        return sum(last) + jnp.sum(seen**2)

    return jax.grad(loss), (list(normal(0, lanes)), normal(1, steps))


def branches() -> Made:
    """Truth values and whole numbers among the lanes; all of them stacked, backwards, and the last state read."""

    def run(starts: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            after, counts = [], []
            for v, n in carry:
                up = v + x > 0.25
                after.append(jnp.where(up, v * 0.5 - x, v + 0.125))
                counts.append(n + up.astype(jnp.int32))
            return list(zip(after, counts, strict=True)), (after, counts[3])

        return jax.lax.scan(step, [(s, jnp.int32(0)) for s in starts], xs, reverse=True)

    return run, (list(normal(2, N)), normal(3, 7))


def arrays() -> Made:
    """An array of its own for each lane, read at this step and at the one before."""

    def run(starts: Any, tables: Any) -> Any:
        def step(t: Any, carry: Any) -> Any:
            now = [jax.lax.dynamic_index_in_dim(a, t, keepdims=False) for a in tables]
            before = [jax.lax.dynamic_index_in_dim(a, t - 1, keepdims=False) for a in tables]
            return [c * 0.5 + a * jnp.sin(b) for c, a, b in zip(carry, now, before, strict=True)]

        return jax.lax.fori_loop(1, 40, step, starts)

    return run, (list(normal(4, N)), [normal(10 + k, 40) for k in range(N)])


def two_lists() -> Made:
    """Two lists that are computed alike but carried apart, read in the other's order, and one number beside them."""

    def run(one: Any, other: Any, shared: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            a, b, s = carry
            return ([x * s + y for x, y in zip(a, b[::-1], strict=True)], [jnp.cos(x) for x in a], s * 0.75), a[2]

        return jax.lax.scan(step, (one, other, shared), None, length=5)

    return run, (list(normal(5, N)), list(normal(6, N)), normal(7, 1)[0])


CASES: dict[str, Made] = {"two_lists": two_lists(), "branches": branches(), "arrays": arrays(), "ring": ring()}


def captured_in_kernels(function: Callable[..., Any], args: tuple[Any, ...]) -> Capture:
    """Capture a function as if XLA ran its loops kernel by kernel. From jax 0.12 on XLA compiles these as one, and a
    kernel of ours is compared with that: whether a team of threads is worth it then is another question.
    """
    captured = capture(function, args, CPU)
    text = captured.text.replace('xla_cpu_small_call="true"', 'xla_cpu_small_call="false"')
    return replace(captured, _known_text=text)


def graph_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Graph:
    captured = captured_in_kernels(function, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), args))
    return build(hlo_parser.parse(captured.text), captured.homes)


def bodies(graph: Graph) -> list[Graph]:
    return [n.graphs["body"] for n in graph.nodes if n.op == "while"]


def agreed(function: Callable[..., Any], args: tuple[Any, ...], name: str) -> Stitched:
    """A function's plan, whose kernels agree with XLA run by the interpreter and compiled."""
    made = stitch_capture(captured_in_kernels(function, args), CPU)
    want = [np.asarray(r) for r in jax.tree.leaves(jax.jit(function)(*args))]
    leaves = jax.tree.leaves(args)
    assert_close(forced.run(made, leaves), want, name)
    assert_close(interpreted(made, leaves), want, f"{name} by the interpreter")
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_joined_numbers_agree(name: str, dtype: str) -> None:
    """Catches lanes in another order than what they are computed from, a lane of another kind, a wrong neighbour."""
    function, numbers = CASES[name]
    graph = graph_of(function, numbers)
    changed = with_joined_numbers(graph)
    verify(changed)
    assert sum(map(len, bodies(changed))) * 2 < sum(map(len, bodies(graph)))
    with jax.enable_x64(dtype == "float64"):
        args = jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers)
        made = agreed(function, args, name)
    teams = [p.team.loop for k in made.kernels for p in k.scheduled.parts if p.team is not None]
    assert len([t for t in teams if t.carried]) == len(bodies(graph)), str(made.plan)


def drawn(seed: int) -> Made:
    """A loop over lists of scalars: each lane computes the same from numbers drawn near it, but for some odd ones."""
    random = np.random.default_rng(seed)
    lanes, lists = int(random.integers(LEAST, 2 * LEAST)), int(random.integers(1, 4))
    shifts = [[int(s) for s in random.integers(0, lanes, 3) * (random.random(3) < 0.5)] for _ in range(lists)]
    picked = [[int(s) for s in random.integers(0, lists, 2)] for _ in range(lists)]
    odd = {int(i) for i in random.integers(0, lanes, 2)} if random.random() < 0.7 else set()
    seen = [int(i) for i in random.integers(0, lanes, 3)]
    kinds = [int(k) for k in random.integers(0, 4, lists)]
    functions = (jnp.tanh, jnp.sin, jnp.abs, lambda v: v * v * 0.1)

    def run(states: Any, params: Any, tables: Any, xs: Any) -> Any:
        def step(carry: Any, at: Any) -> Any:
            x, rows = at
            after = []
            for k, (a, b) in enumerate(picked):
                first, second, third = shifts[k]
                one = [functions[kinds[k]](carry[a][(i + first) % lanes] * params[i]) for i in range(lanes)]
                two = [carry[b][(i - second) % lanes] * x + rows[(i + third) % lanes] for i in range(lanes)]
                made = [0.5 * p - 0.25 * q for p, q in zip(one, two, strict=True)]
                after.append([jnp.maximum(m, x) if i in odd else m for i, m in enumerate(made)])
            return after, ([after[0][i] for i in seen], after[-1] if seed % 2 else None)

        last, stacked = jax.lax.scan(step, states, (xs, tables), reverse=seed % 3 == 0)
        return last, stacked, sum(last[0])

    steps = int(random.integers(2, 9))
    states = [list(random.standard_normal(lanes)) for _ in range(lists)]
    tables = [random.standard_normal(steps) for _ in range(lanes)]
    return run, (states, list(random.standard_normal(lanes)), tables, random.standard_normal(steps))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_drawn_lists_agree(seed: int, gradient: bool) -> None:
    """What the cases above do not think of: shifts, odd lanes and lists read by each other, drawn."""
    function, numbers = drawn(seed)
    if gradient:
        forward = function
        function = jax.grad(lambda *args: sum(jnp.sum(r**2) for r in jax.tree.leaves(forward(*args))), (0, 1))
    args = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), numbers)
    verify(with_joined_numbers(graph_of(function, args)))
    agreed(function, args, f"seed {seed}")


@functools.cache
def stitched_ring(lanes: int) -> Stitched:
    function, numbers = ring(lanes, 50)
    args = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), numbers)
    return stitch_capture(captured_in_kernels(function, args), CPU)


def test_text_does_not_grow_with_a_list() -> None:
    """Catches loops over the steps that are as long as the list: compilers took longer than linearly for them."""
    sizes = []
    for lanes in (N, N + 4):
        made = stitched_ring(lanes)
        loops = [k.source.text for k in made.kernels if "// a loop of" in k.source.text]
        assert len(loops) == 2, str(made.plan)
        sizes.append([text.count("\n") for text in loops])
    assert sizes[0] == sizes[1]


def test_what_a_loop_kernel_writes_is_not_made_before() -> None:
    """Catches zeros that the kernel before a loop makes for arrays that the loop writes all of."""
    made = stitched_ring(N)
    for k in made.kernels:
        outputs = [made.plan.graph[i] for i in k.scheduled.outputs]
        assert not [n for n in outputs if n.op == "broadcast" and n.tensor.size > N], str(made.plan)


def test_numbers_stay_joined_where_no_team_takes_their_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a rewrite for all loops that is undone with those for teams: each number was a kernel of its own."""

    def refuse(*_: Any) -> None:
        raise NotForTeams("for the test")

    monkeypatch.setattr(loop_patterns, "best_team", refuse)
    graph = graph_of(*ring())
    loops = [n for n in loop_patterns.prepared(graph, CPU).nodes if n.op == "while"]
    assert loops and all(len(loop.operands) < N for loop in loops)


def test_short_lists_and_unlike_numbers_stay() -> None:
    """Few numbers are better in registers; numbers that are computed each in its own way are no lanes."""

    def unlike(starts: Any) -> Any:
        functions = (jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.sqrt, jnp.abs, jnp.log1p, jnp.floor)

        def step(carry: Any, _: Any) -> Any:
            return [functions[k % 8](c * (k + 1)) * (0.5 if k % 3 else c) for k, c in enumerate(carry)], carry[0]

        return jax.lax.scan(step, starts, None, length=9)

    few, numbers = ring(LEAST - 1)
    for function, args in ((few, numbers), (unlike, (list(normal(8, N)),))):
        graph = graph_of(function, args)
        assert with_joined_numbers(graph) is graph
