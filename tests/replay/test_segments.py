"""Running segments in the place of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend import replay
from jax_stitch.frontend.replay import ReplayError, Segment, StitchedGraph
from jax_stitch.graph import Graph

_DIAMOND = """HloModule diamond
ENTRY %main {
  %x = f32[4]{0} parameter(0)
  %a = f32[4]{0} exponential(%x)
  %b = f32[4]{0} negate(%a)
  %c = f32[4]{0} sine(%a)
  %d = f32[4]{0} add(%b, %c)
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%d, %c)
}
"""
X = np.linspace(0, 1, 4, dtype=np.float32)


def diamond() -> tuple[Graph, dict[str, int]]:
    built = graph.build(hlo_parser.parse(_DIAMOND))
    return built, {n.name: n.id for n in built.nodes}


class Calls:
    """Makes segments' calls and counts how often each ran."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def make(self, name: str, function: Callable[..., Sequence[Any]]) -> Callable[[Sequence[Any]], Sequence[Any]]:
        def call(arguments: Sequence[Any]) -> Sequence[Any]:
            self.seen.append(name)
            return function(*arguments)

        return call


def test_a_segment_runs_once_and_its_nodes_do_not() -> None:
    built, at = diamond()
    calls = Calls()
    nodes = frozenset({at["b"], at["c"], at["d"]})
    # Not what the nodes compute, so that it shows who computed.
    call = calls.make("bcd", lambda a: (a * 10, a + 5))
    segment = Segment(nodes, (at["a"],), (at["d"], at["c"]), call)
    d, c = jax.jit(replay.replay(StitchedGraph(built, (segment,))))([X])
    np.testing.assert_allclose(d, np.exp(X) * 10, rtol=1e-6)
    np.testing.assert_allclose(c, np.exp(X) + 5, rtol=1e-6)
    assert calls.seen == ["bcd"]


def test_segments_run_in_the_order_of_their_data() -> None:
    built, at = diamond()
    calls = Calls()
    last = Segment(frozenset({at["d"]}), (at["c"], at["b"]), (at["d"],), calls.make("last", lambda c, b: (b + c,)))
    first = Segment(frozenset({at["a"], at["c"]}), (at["x"],), (at["a"], at["c"]), calls.make("first", lambda x: (jnp.exp(x), jnp.sin(jnp.exp(x)))))  # fmt: skip  # noqa: E501
    d, _ = replay.replay(StitchedGraph(built, (last, first)))([X])
    np.testing.assert_allclose(d, np.sin(np.exp(X)) - np.exp(X), rtol=1e-5)
    assert calls.seen == ["first", "last"]


def test_what_a_segment_copied_is_still_there_for_others() -> None:
    built, at = diamond()
    # "a" is inside both segments and returned by neither.
    one = Segment(frozenset({at["a"], at["b"]}), (at["x"],), (at["b"],), lambda v: (-jnp.exp(v[0]),))
    two = Segment(frozenset({at["a"], at["c"]}), (at["x"],), (at["c"],), lambda v: (jnp.sin(jnp.exp(v[0])),))
    d, _ = replay.replay(StitchedGraph(built, (one, two)))([X])
    np.testing.assert_allclose(d, np.sin(np.exp(X)) - np.exp(X), rtol=1e-5)


def never(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("it ran")


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (
            [("bd", "ac", "d"), ("ac", "xb", "ac")],
            "segments of main wait for one another: .*%1 a, %3 c.* -> ",
        ),
        ([("ad", "xbc", "ad")], "segments of main wait for one another: .*%1 a, %4 d"),
        ([("ab", "x", "c")], "a segment of main returns what it does not compute: %3 c"),
        ([("ab", "xa", "b")], "a segment of main reads what it computes itself: %1 a"),
        ([("ab", "x", "b"), ("b", "a", "b")], "two segments of main return %2 b"),
    ],
)
def test_impossible_segments_are_found_before_anything_runs(segments: list[tuple[str, str, str]], message: str) -> None:
    built, at = diamond()
    made = [
        Segment(frozenset(at[n] for n in nodes), tuple(at[n] for n in reads), tuple(at[n] for n in outputs), never)
        for nodes, reads, outputs in segments
    ]
    with pytest.raises(ReplayError, match=message):
        replay.replay(StitchedGraph(built, tuple(made)))


def test_children_take_the_place_of_called_computations() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 20, lambda i, v: jnp.cos(v) + i, x)

    module = jax.jit(f).lower(X).compile().runtime_executable().hlo_modules()[0]
    built = graph.build(hlo_parser.parse(module.to_string()))
    (loop,) = [n for n in built.nodes if n.op == "while"]
    body = loop.graphs["body"]
    (cos,) = [n for n in body.nodes if n.op == "cosine"]
    sine = Segment(frozenset({cos.id}), cos.operands, (cos.id,), lambda v: [jnp.sin(v[0])])
    run = replay.replay(StitchedGraph(built, (), {(loop.id, "body"): StitchedGraph(body, (sine,))}))
    want = jax.jit(lambda x: lax.fori_loop(0, 20, lambda i, v: jnp.sin(v) + i, x))(X)
    np.testing.assert_allclose(jax.jit(run)([X])[0], want, rtol=1e-5)


def test_arguments_are_counted() -> None:
    built, _ = diamond()
    with pytest.raises(ReplayError, match="main takes 1 arguments, not 2"):
        replay.replay(StitchedGraph(built))([X, X])


def test_it_runs_inside_other_transformations_of_jax() -> None:
    built, _ = diamond()
    run = replay.replay(StitchedGraph(built))
    want = np.sin(np.exp(X)) - np.exp(X)
    _, ys = jax.jit(lambda x: lax.scan(lambda c, _: (c, run([x])[0]), 0, None, 3))(X)
    np.testing.assert_allclose(ys, [want] * 3, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(lambda x: run([x])[0])(X[None]), [want], rtol=1e-5)
    assert not jax.config.jax_enable_x64
