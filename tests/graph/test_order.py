"""A graph, and so its plan, does not depend on the order in which a text lists its instructions."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import jax.numpy as jnp
import pytest

import hlo_parser
from bench.workloads import ALL
from hlo_parser import Computation, Instruction, Module
from hlo_parser.analysis import sources
from hlo_parser.rewrite import rename
from jax_stitch import devices, graph
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion import FusionPlan, Pattern, explore
from tests.graph.helpers import module, ops

NAMES = ("layer_norm_gradient", "standardise", "lstm", "perceptron")
SLOW = ("word2vec", "adamw_clipped", "crnn_inference", "multi_interest")


def captured(name: str) -> Module:
    workload = ALL[name]
    function, args = workload.abstract(workload.test_sizes[0], jnp.float32)
    return hlo_parser.parse(capture(function, args, devices.get("cpu")).text)


def shuffled(whole: Module, random: Random) -> Module:
    """The same program: instructions in another order under other names, and fusions with their operands in another."""
    computations = []
    for c in whole.computations:
        numbers = list(range(len(c)))
        random.shuffle(numbers)
        names = {i.name: f"v.{n}" for i, n in zip(c, numbers, strict=True)}
        computations.append(replace(c, instructions=tuple(rename(i, names) for i in _in_any_order(c, random))))
    return _with_operands_swapped(replace(whole, computations=tuple(computations)), random)


def _in_any_order(c: Computation, random: Random) -> list[Instruction]:
    placed: set[str] = set()
    left, found = list(c), []
    while left:
        ready = [i for i in left if placed.issuperset(sources(i))]
        chosen = random.choice(ready)
        left.remove(chosen)
        placed.add(chosen.name)
        found.append(chosen)
    return found


def _with_operands_swapped(whole: Module, random: Random) -> Module:
    swaps: dict[str, list[int]] = {}
    for i in (i for c in whole.computations for i in c if i.opcode == "fusion"):
        order = list(range(len(i.operands)))
        random.shuffle(order)
        swaps.setdefault(str(i.attributes["calls"]), order)

    def swapped(c: Computation, i: Instruction) -> Instruction:
        if i.opcode == "fusion":
            order = swaps[str(i.attributes["calls"])]
            return replace(i, operands=tuple(i.operands[n] for n in order))
        if i.opcode == "parameter" and c.name in swaps:
            assert i.parameter_number is not None
            return replace(i, parameter_number=swaps[c.name].index(i.parameter_number))
        return i

    return hlo_parser.rewrite.map_instructions(whole, swapped)


def planned(plan: FusionPlan) -> list[object]:
    """All of a plan but the names."""

    def shown(p: Pattern) -> object:
        return sorted(p.nodes), p.rows, p.inputs, p.outputs, p.phase, sorted(p.copies)

    kernels = [list(map(shown, kernel)) for kernel in plan.kernels]
    return [str_of(plan.graph), kernels, *((key, planned(child)) for key, child in sorted(plan.children.items()))]


def str_of(built: graph.Graph) -> str:
    """A graph without the names of XLA's kernels."""
    return "\n".join(line.split("  //")[0] for line in str(built).splitlines()[1:])


@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_the_order_of_the_text_decides_nothing(name: str) -> None:
    """Catches graphs whose nodes stand as in the text, and planners that take the first of what is equally good."""
    whole, random = captured(name), Random(name)
    expected = graph.build(whole)
    for _ in range(3):
        other = shuffled(whole, random)
        assert str(other) != str(whole)
        built = graph.build(other)
        assert str_of(built) == str_of(expected)
        for device in map(devices.get, ("cpu", "h200")):
            assert planned(explore(built, device)) == planned(explore(expected, device))


def test_what_has_an_effect_keeps_its_order() -> None:
    """Catches an order by the results alone: two calls out of the program would change places."""
    call = 'custom-call(%x), custom_call_target="told", custom_call_has_side_effect=true'
    text = f"""
  %x = f32[] parameter(0)
  %first = f32[] {call}, backend_config="1"
  %second = f32[] {call}, backend_config="2"
  %third = f32[] {call}, backend_config="3"
  ROOT %r = f32[] subtract(%third, %second)"""
    for built in (graph.flatten(module(text)), graph.build(module(text))):
        assert [n.name for n in built.nodes if n.op == "custom-call"] == ["first", "second", "third"]


def test_operations_stand_right_before_their_first_reader() -> None:
    """Catches an order that is as good for plans and bad for memory: all that is cheap first."""
    text = """
  %x = f32[4] parameter(0)
  %b = f32[4] exponential(%x)
  %a = f32[4] negate(%x)
  %c = f32[4] sine(%b)
  %d = f32[4] tanh(%a)
  ROOT %r = f32[4] add(%d, %c)"""
    assert ops(graph.build(module(text))) == ["negate", "tanh", "exponential", "sine", "add"]
