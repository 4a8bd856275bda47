"""A broken graph must not pass, and the message must say which node is broken and how."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.graph import Graph, GraphError, Node, TensorType, TupleType
from jax_stitch.util.values import replace
from tests.graph.helpers import ADD

F32 = TensorType("f32", (4, 6))


def node(op: str, type_: Any, operands: tuple[int, ...], literal: np.ndarray | None = None, **attributes: Any) -> Node:
    return Node(2, op, type_, operands, MappingProxyType(attributes), literal=literal, name="bad")


def tensor(dtype: str, *dims: int) -> TensorType:
    return TensorType(dtype, dims)


def around(bad: Node, *operands: TensorType) -> Graph:
    """A graph of two parameters and the node."""
    types = operands or (F32, F32)
    parameters = tuple(Node(i, "parameter", t, (), name=f"p{i}") for i, t in enumerate(types))
    return Graph("g", (*parameters, replace(bad, id=len(types))), tuple(range(len(types))), (len(types),), single=True)


@pytest.mark.parametrize(
    ("bad", "operands", "message"),
    [
        (node("add", tensor("f32", 4, 7), (0, 1)), (), "operand 0 has other dimensions"),
        (node("add", tensor("bf16", 4, 6), (0, 1)), (), "operands and result are of one type"),
        (node("compare", F32, (0, 1), direction="LT"), (), "compare two of a kind to pred"),
        (node("select", F32, (0, 1, 1)), (F32, F32), "select by pred between two of a kind"),
        (node("is-finite", F32, (0,)), (), "the result is pred"),
        (node("abs", tensor("c64", 3), (0,)), (tensor("c64", 3),), "the type of a complex number's part"),
        (node("bitcast-convert", tensor("f64", 4, 6), (0,)), (), "the number of bits changes"),
        (node("copy", F32, (0,)), (), "an opcode that graphs do not have"),
        (node("tuple", TupleType((F32,)), (0,)), (), "an opcode that graphs do not have"),
        (node("negate", F32, (0,), literal=np.zeros(3)), (), "a literal belongs to a constant"),
        (node("constant", F32, (), literal=np.zeros((4, 6))), (), r"the literal is float64\(4, 6\)"),
        (node("iota", F32, (), iota_dimension=2), (), "it counts along no dimension of its own"),
        (node("broadcast", tensor("f32", 6, 4), (0,), dimensions=(1, 0)), (), "dimensions do not rise one for one"),
        (node("broadcast", tensor("f32", 4, 2, 6), (0,), dimensions=(0, 1)), (), "sizes differ"),
        (node("reshape", tensor("f32", 25), (0,)), (), "the number of elements changes"),
        (node("transpose", F32, (0,), dimensions=(1, 0)), (), "sizes differ"),
        (node("transpose", F32, (0,), dimensions=(0, 0)), (), "no permutation"),
        (node("slice", F32, (0,), slice=((0, 5, 1), (0, 6, 1))), (), "out of range"),
        (node("slice", F32, (0,), slice=((0, 4, 2), (0, 6, 1))), (), "sizes differ"),
        (node("dynamic-slice", F32, (0, 1)), (F32, tensor("s32")), "one scalar start for each dimension"),
        (node("concatenate", tensor("f32", 9, 6), (0, 1), dimensions=(0,)), (), "sizes do not add up"),
        (node("pad", F32, (0, 1), padding=((1, 0, 0), (0, 0, 0))), (F32, tensor("f32")), "sizes differ"),
        (node("reverse", F32, (0,), dimensions=(2,)), (), "a dimension it does not have"),
        (node("dot", F32, (0, 1), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)), (), "contracted sizes differ"),
        (node("get-tuple-element", F32, (0,), index=0), (), "its operand is no tuple"),
        (node("negate", F32, (3,)), (), "reads what comes later"),
    ],
)
def test_broken_nodes(bad: Node, operands: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph.verify(around(bad, *operands))


def test_a_broken_node_is_named() -> None:
    with pytest.raises(GraphError, match=r"g: %2 = f32\[5\] reshape\(%0\) \(bad\) of \(f32\[4,6\]\): the number"):
        graph.verify(around(node("reshape", tensor("f32", 5), (0,))))


def test_called_graphs_are_checked_and_must_fit() -> None:
    text = f"""HloModule m
{ADD}
ENTRY %main {{
  %x = f32[4,6]{{1,0}} parameter(0)
  %z = f32[] constant(0)
  ROOT %r = f32[4]{{0}} reduce(%x, %z), dimensions={{1}}, to_apply=%add
}}"""
    built = graph.build(hlo_parser.parse(text))
    *before, reduce = built.nodes
    combiner = reduce.graphs["to_apply"]

    def with_combiner(graph: Graph) -> Graph:
        return replace(built, nodes=(*before, replace(reduce, graphs={"to_apply": graph})))

    with pytest.raises(GraphError, match="the combiner does not fit"):
        graph.verify(with_combiner(replace(combiner, parameters=(0,), nodes=(combiner[0],), results=(0,))))
    wrong = replace(combiner[2], type=tensor("f32", 2))
    with pytest.raises(GraphError, match=r"add: .*operand 0 has other dimensions"):
        graph.verify(with_combiner(replace(combiner, nodes=(*combiner.nodes[:2], wrong))))


def test_parameters_and_results_must_be_there() -> None:
    good = around(node("add", F32, (0, 1)))
    graph.verify(good)
    with pytest.raises(GraphError, match=r"parameter nodes \[0, 1\] are not the parameters \[0\]"):
        graph.verify(replace(good, parameters=(0,)))
    with pytest.raises(GraphError, match=r"results \[7\] do not fit its 3 nodes"):
        graph.verify(replace(good, results=(7,)))
