"""Which launches share a call, in what order they run in it, and what is in whose memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend.replay import replay
from jax_stitch.frontend.replay.calls import Call, Joining, calls_of, in_calls
from jax_stitch.frontend.replay.launched import Launch, LaunchedGraph
from jax_stitch.graph import Graph

HLO = """HloModule chain
ENTRY %main {
  %x = f32[4]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
BODY
}
"""
CHAIN = """  %a = f32[4]{0} exponential(%x)
  %b = f32[4]{0} negate(%a)
  %r = f32[2,2]{1,0} reshape(%b)
  %c = f32[2,2]{1,0} sine(%r)
  %d = f32[4]{0} add(%y, %a)
  ROOT %t = (f32[2,2]{1,0}, f32[4]{0}) tuple(%c, %d)"""


def built(body: str) -> tuple[Graph, dict[str, int]]:
    made = graph.build(hlo_parser.parse(HLO.replace("BODY", body)))
    return made, {n.name: n.id for n in made.nodes}


def launches(made: Graph, *names: str) -> tuple[Launch, ...]:
    """One for each of these nodes, that reads its operands."""
    by_name = {n.name: n for n in made.nodes}
    nodes = [by_name[name] for name in names]
    return tuple(Launch(frozenset({n.id}), n.operands, (n.id,), k, n.name, None) for k, n in enumerate(nodes))


def joining(over: dict[str, list[tuple[int, int]]] | None = None, large: Sequence[str] = (), **options: Any) -> Joining:
    aliases = over or {}
    return Joining(lambda at: at.scope not in large, lambda at: aliases.get(at.scope, ()), lambda at: 1, **options)


def calls(body: str, names: Sequence[str], how: Joining | None = None, are_apart: bool = False) -> list[Call]:
    made, _ = built(body)
    return calls_of(LaunchedGraph(made, launches(made, *names)), how or joining(), are_apart)


def scopes(found: Sequence[Call]) -> list[list[str]]:
    return sorted([launch.scope for launch in call.launches] for call in found)


def test_small_kernels_in_a_row_share_a_call_also_through_a_reshape() -> None:
    (call,) = calls(CHAIN, "abcd")
    _, at = built(CHAIN)
    assert call.inputs == (at["x"], at["y"]) and set(call.outputs) == {at["c"], at["d"]}
    assert set(call.temporaries) == {at["a"], at["b"]}
    by_scope = dict(zip((launch.scope for launch in call.launches), call.levels, strict=True))
    assert by_scope == {"a": 0, "b": 1, "d": 1, "c": 2}


def test_an_operation_of_xla_between_two_parts_them() -> None:
    found = calls(CHAIN, "acd")
    assert scopes(found) == [["a", "d"], ["c"]]
    _, at = built(CHAIN)
    (first,) = [call for call in found if len(call.launches) == 2]
    assert at["a"] in first.outputs, "negate of XLA's reads it"


def test_a_large_kernel_has_a_call_of_its_own() -> None:
    assert scopes(calls(CHAIN, "abcd", joining(large="b"))) == [["a", "d"], ["b"], ["c"]]


def test_kernels_that_wait_for_different_ones_do_not_wait_for_each_other() -> None:
    """Catches: c and d in one call, so that what reads c waits for b, which c does not need."""
    body = """  %a = f32[4]{0} exponential(%x)
  %b = f32[4]{0} negate(%y)
  %c = f32[4]{0} sine(%a)
  %d = f32[4]{0} tanh(%b)
  %e = f32[4]{0} add(%c, %d)
  ROOT %t = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(%c, %d, %e)"""
    assert scopes(calls(body, "abcde", joining(large="ab"))) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert scopes(calls(body, "abcde", joining(large="a"))) == [["a"], ["b", "d"], ["c", "e"]]


def test_a_kernel_that_overwrites_waits_for_those_that_read() -> None:
    """d writes over a, which b reads: without waiting, both are at level 1."""
    (call,) = calls(CHAIN, "abcd", joining({"d": [(1, 0)]}))
    by_scope = {launch.scope: (level, places) for launch, level, places in zip(call.launches, call.levels, call.places, strict=True)}  # fmt: skip  # noqa: E501
    assert by_scope["d"][0] == 2
    assert by_scope["d"][1][-1] == by_scope["a"][1][-1], "they have one memory"
    assert call.aliases == {}, "nothing of the caller's is written over"


def test_two_kernels_that_wait_for_each_other_have_calls_of_their_own() -> None:
    """Both write over a, which the other reads."""
    found = calls(CHAIN, "abd", joining({"d": [(1, 0)], "b": [(0, 0)]}))
    assert scopes(found) == [["a"], ["b"], ["d"]]


def test_what_others_read_is_not_overwritten_in_a_call() -> None:
    """XLA's sine reads a too: within one call it could not be copied before d overwrites it."""
    body = CHAIN.replace("sine(%r)", "cosine(%r)").replace("reshape(%b)", "reshape(%a)")
    found = calls(body, "ad", joining({"d": [(1, 0)]}))
    assert scopes(found) == [["a"], ["d"]]
    (over,) = [call for call in found if call.launches[0].scope == "d"]
    assert over.aliases == {1: 0}, "XLA is told, and copies"


def test_an_argument_that_is_overwritten() -> None:
    (call,) = calls(CHAIN, "abcd", joining({"d": [(0, 0)]}), are_apart=True)
    _, at = built(CHAIN)
    assert {call.inputs[i]: call.outputs[o] for i, o in call.aliases.items()} == {at["y"]: at["d"]}


@pytest.mark.parametrize(("are_apart", "level"), [(True, 1), (False, 3)])
def test_two_arguments_may_be_one_array(are_apart, level) -> None:
    """XLA makes one array of two that it finds equal: who reads the other then reads what is overwritten."""
    body = """  %a = f32[4]{0} exponential(%x)
  %b = f32[4]{0} negate(%y)
  %c = f32[4]{0} sine(%b)
  %d = f32[4]{0} add(%x, %a)
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%c, %d)"""
    (call,) = calls(body, "abcd", joining({"b": [(0, 0)]}), are_apart)
    levels = dict(zip((launch.scope for launch in call.launches), call.levels, strict=True))
    assert levels["c"] == level, "b waits for d, which reads x"


def test_in_place_along_a_chain() -> None:
    """x -> a -> b -> c in the memory of x."""
    over = {"a": [(0, 0)], "b": [(0, 0)], "c": [(0, 0)]}
    body = CHAIN.replace("add(%y, %a)", "add(%y, %y)")
    (call,) = calls(body, "abc", joining(over), are_apart=True)
    _, at = built(body)
    assert call.outputs == (at["c"],) and call.aliases == {0: 0} and not call.temporaries
    assert [places[-1] for places in call.places] == [1, 1, 1]


def test_a_launch_waits_for_what_it_does_not_read() -> None:
    made, at = built(CHAIN)
    a, b, c = launches(made, *"abc")
    late = Launch(a.nodes, a.inputs, a.outputs, 0, "a", None, after=(at["y"],))
    (call,) = calls_of(LaunchedGraph(made, (late, b, c)), joining())
    assert call.after == (at["y"],) and call.inputs == (at["x"],)


def test_calls_run_in_place_of_their_nodes() -> None:
    """Replayed with a stand-in for the kernels that follows the wires, the values are those of the graph."""
    made, _ = built(CHAIN)
    functions = {"a": jnp.exp, "b": jnp.negative, "c": jnp.sin, "d": jnp.add}

    def run(_: Graph, call: Call, arrays: Sequence[Any]) -> list[Any]:
        buffers: dict[int, Any] = dict(enumerate(arrays))
        for launch, places in zip(call.launches, call.places, strict=True):
            read = [jnp.reshape(buffers[p], (2, 2) if launch.scope == "c" else (4,)) for p in places[:-1]]
            buffers[places[-1]] = functions[launch.scope](*read)
        return [buffers[len(call.inputs) + n] for n in range(len(call.outputs))]

    x, y = np.linspace(0, 1, 4, dtype=np.float32), np.ones(4, np.float32)
    wanted = np.sin(-np.exp(x)).reshape(2, 2), y + np.exp(x)
    for names in ("abcd", "acd", "bd", "abd"):
        launched = LaunchedGraph(made, launches(made, *names))
        for found, value in zip(replay(in_calls(launched, joining(), run))([x, y]), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6)
