"""Propagation of splits, by enumeration: every element that a row reads must lie in the same row of the operand."""

from __future__ import annotations

from itertools import chain, combinations, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.analysis.binding import (
    Binding,
    Factor,
    covers,
    index_of,
    inner_sizes,
    position_in,
    regroup,
    rows_of,
    to_operand,
    to_result,
)
from jax_stitch.analysis.maps import reads
from jax_stitch.graph import Graph, Node
from jax_stitch.ir.indices import const, var
from tests.analysis.snippets import INSTRUCTIONS, graph_of, indices_of
from tests.fusion import forced

Indices = tuple[int, ...]


def splits(dims: Indices) -> list[tuple[Binding, int]]:
    """Every split whose rows are some of the dimensions, with the number of rows."""
    subsets = chain.from_iterable(combinations(range(len(dims)), n) for n in range(len(dims) + 1))
    return [(rows_of(dims, rows), prod(dims[d] for d in rows)) for rows in subsets]


def row_of_each(binding: Binding, rows: int) -> dict[Indices, int]:
    """The row of every element that the binding reaches."""
    found: dict[Indices, int] = {}
    for row in range(rows):
        for position in range(prod(inner_sizes(binding))):
            index = tuple(e.evaluate({}) for e in index_of(binding, const(row), const(position)))
            assert index not in found, "two rows or places share an element"
            found[index] = row
    return found


def elements_read(graph: Graph, node: Node, k: int, index: Indices) -> set[Indices]:
    """The elements of operand ``k`` that a result element may read, whatever the data."""
    if node.op == "reduce":
        dims = graph[node.operands[k]].tensor.dims
        reduced = node.attributes["dimensions"]
        kept = dict(zip([d for d in range(len(dims)) if d not in reduced], index, strict=True))
        return set(product(*([kept[d]] if d in kept else range(size) for d, size in enumerate(dims))))
    found: set[Indices] = set()
    for read in reads(graph, node, tuple(map(const, index))):
        unknown = sorted({v for e in read.index for v in e.variables()}, key=str)
        for values in product(*(range(v.low, v.high + 1) for v in unknown)):
            known = {v.name: x for v, x in zip(unknown, values, strict=True)}
            holds = all(g.low <= (v := g.value.evaluate(known)) <= g.high and v % g.step == 0 for g in read.guards)
            if holds and read.operand == k:
                found.add(tuple(e.evaluate(known) for e in read.index))
            if holds:
                found |= {tuple(e.evaluate({}) for e in at) for _, operand, at in read.starts if operand == k}
    return found


def assert_same_rows(graph: Graph, node: Node, k: int, result: Binding, operand: Binding, rows: int) -> None:
    operand_rows = row_of_each(operand, rows)
    assert len(operand_rows) == graph[node.operands[k]].tensor.size
    for index, row in row_of_each(result, rows).items():
        for at in elements_read(graph, node, k, index):
            assert operand_rows[at] == row, (index, row, at)


REDUCES = {
    "reduce_rows": ("s32[3,4,2]", "{1}", "s32[3,2]"),
    "reduce_columns": ("s32[4,3]", "{0}", "s32[3]"),
    "reduce_all": ("s32[2,3]", "{0,1}", "s32[]"),
}


def all_nodes() -> dict[str, tuple[Graph, Node]]:
    found = {name: graph_of(text) for name, text in INSTRUCTIONS.items()}
    combiner = "%c { %x = s32[] parameter(0)\n%y = s32[] parameter(1)\nROOT %s = s32[] add(%x, %y) }"
    for name, (operand, dims, result) in REDUCES.items():
        body = f"%p = {operand} parameter(0)\n%z = s32[] constant(0)\n"
        built = forced.graph_from(f"{body}ROOT %r = {result} reduce(%p, %z), dimensions={dims}, to_apply=%c", combiner)
        found[name] = built, built[built.results[0]]
    return found


NODES = all_nodes()


@pytest.mark.parametrize("name", NODES)
def test_an_operands_split_holds_what_the_rows_of_the_result_read(name: str) -> None:
    graph, node = NODES[name]
    for result, rows in splits(node.tensor.dims):
        for k in range(len(node.operands)):
            operand = to_operand(graph, node, k, result)
            if operand is not None and covers(operand, rows):
                assert_same_rows(graph, node, k, result, operand, rows)


@pytest.mark.parametrize("name", NODES)
def test_a_results_split_reads_its_own_rows_of_the_operand(name: str) -> None:
    graph, node = NODES[name]
    for k, i in enumerate(node.operands):
        for operand, rows in splits(graph[i].tensor.dims):
            result = to_result(graph, node, k, operand)
            if result is not None and covers(result, rows):
                assert_same_rows(graph, node, k, result, operand, rows)


LOCAL = {
    "add": [(0,), (1,), (0, 1)],
    "broadcast_inner": [(0,), (2,), (0, 2)],
    "reshape_merge": [(0,), (1,), (0, 1)],
    "reshape_split": [(0,), (1,), (0, 1), (2, 3)],
    "transpose": [(0,), (1,), (2,), (0, 1, 2)],
    "slice_one_dim": [(0,)],
    "reverse": [(0,)],
    "concatenate": [(0,)],
    "pad_none": [(0,)],
    "gather_rows": [(1,)],
    "gather_columns": [(0,)],
    "gather_batched": [(0,)],
    "reduce_rows": [(0,), (1,), (0, 1)],
    "reduce_columns": [(0,)],
}


@pytest.mark.parametrize("name", LOCAL)
def test_splits_go_through_wherever_rows_do_not_mix(name: str) -> None:
    """A rule so cautious that nothing is ever stitched."""
    graph, node = NODES[name]
    dims = node.tensor.dims
    for row_dims in LOCAL[name]:
        rows = prod(dims[d] for d in row_dims)
        operand = to_operand(graph, node, 0, rows_of(dims, row_dims))
        assert operand is not None and covers(operand, rows)
        assert to_result(graph, node, 0, operand) is not None


def gather_of(operand: str, result: str, count: int) -> tuple[Graph, Node]:
    """``x[arange(count), i]``."""
    built = forced.graph_from(
        f"""
        %x = {operand} parameter(0)
        %i = s32[{count},1] parameter(1)
        %r = s32[{count},1] iota(), iota_dimension=0
        %both = s32[{count},2] concatenate(%r, %i), dimensions={{1}}
        ROOT %g = {result} gather(%x, %both), offset_dims={{}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}},
          index_vector_dim=1, slice_sizes={{1,1}}
        """
    )
    return built, built[built.results[0]]


def test_an_iota_among_the_indices_selects_the_operands_own_row() -> None:
    graph, node = gather_of("f32[5,4]", "f32[5]", 5)
    operand = to_operand(graph, node, 0, rows_of((5,), (0,)))
    assert operand is not None and covers(operand, 5)
    assert_same_rows(graph, node, 0, rows_of((5,), (0,)), operand, 5)


def test_an_iota_over_part_of_a_dimension_does_not_pair_it() -> None:
    """The rows past the iota's end would belong to nobody: not computed where the operand is made in the kernel."""
    graph, node = gather_of("f32[8,4]", "f32[5]", 5)
    operand = to_operand(graph, node, 0, rows_of((5,), (0,)))
    assert operand is None or not covers(operand, 5)


def test_a_split_covers_its_rows_once_each() -> None:
    """Two factors of the same digit of the row number do not add up to all of it."""
    assert covers(rows_of((2, 3, 4), (0, 2)), 8)
    assert covers(((Factor(2, 2),), (Factor(2, 1),)), 4)
    assert not covers(((Factor(2, 2),), (Factor(2, 2),)), 4)
    assert not covers(((Factor(2, 2),),), 4)
    assert covers((), 1)


SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=0, max_size=4).filter(lambda dims: prod(dims) <= 300)


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.data())
def test_reshapes_keep_every_element_in_its_row(dims, data) -> None:
    left, other = prod(dims), []
    while left > 1:
        other.append(data.draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= other[-1]
    row_dims = [d for d in range(len(dims)) if data.draw(st.booleans())]
    rows = prod(dims[d] for d in row_dims)
    before = rows_of(dims, row_dims)
    after = regroup(before, other)
    if after is None:
        return
    assert covers(after, rows)
    flat = {at: n for n, at in enumerate(indices_of(tuple(other)))}
    rows_after = {flat[at]: row for at, row in row_of_each(after, rows).items()}
    rows_before = row_of_each(before, rows)
    assert [rows_after[n] for n in range(len(flat))] == [rows_before[at] for at in indices_of(tuple(dims))]
    assert regroup(after, dims) == before


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.data())
def test_the_place_of_an_index_is_the_place_it_was_made_from(dims, data) -> None:
    row_dims = [d for d in range(len(dims)) if data.draw(st.booleans())]
    rows = prod(dims[d] for d in row_dims)
    binding = rows_of(dims, row_dims)
    size = prod(inner_sizes(binding))
    row, place = var("row", rows), var("j", size)
    index = index_of(binding, row, place)
    assert position_in(binding, row, index) == place
    for d, (dim, i) in enumerate(zip(binding, index, strict=True)):
        if any(f.stride is not None for f in dim):
            moved = (*index[:d], (i + 1) % dims[d], *index[d + 1 :])
            assert position_in(binding, row, moved) is None, "the next row taken for this one"
