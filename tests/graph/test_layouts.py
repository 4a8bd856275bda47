"""A bitcast reads the same bytes under another shape: numpy can do that too, which is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_parser import ArrayShape, Layout
from jax_stitch.graph import GraphError
from jax_stitch.graph.layouts import Step, bitcast_steps


def shape(dims: tuple[int, ...], order: tuple[int, ...], dtype: str = "f32") -> ArrayShape:
    return ArrayShape(dtype, dims, Layout(order))


def bytes_of(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The elements as they lie in memory under a minor-to-major order."""
    return array.transpose(tuple(reversed(order))).reshape(-1)


def apply(array: np.ndarray, steps: list[Step]) -> np.ndarray:
    for step in steps:
        array = array.reshape(step.dims) if step.op == "reshape" else array.transpose(step.permutation)
        assert array.shape == step.dims
    return array


@st.composite
def shapes_of_one_size(draw: st.DrawFn) -> tuple[ArrayShape, ArrayShape]:
    def one(factors: list[int]) -> ArrayShape:
        dims = [1] * draw(st.integers(1, 4))
        for factor in factors:
            dims[draw(st.integers(0, len(dims) - 1))] *= factor
        return shape(tuple(dims), tuple(draw(st.permutations(range(len(dims))))))

    factors = draw(st.lists(st.sampled_from([2, 3, 4, 5]), max_size=4))
    return one(factors), one(draw(st.permutations(factors)))


@given(shapes_of_one_size())
def test_memory_stays_as_it_is(pair: tuple[ArrayShape, ArrayShape]) -> None:
    source, target = pair
    assert source.layout is not None and target.layout is not None
    steps = bitcast_steps(source, target, "here")
    before = np.arange(source.size).reshape(source.dims)
    after = apply(before, steps)
    assert after.shape == target.dims
    bits = bytes_of(before, source.layout.minor_to_major), bytes_of(after, target.layout.minor_to_major)
    np.testing.assert_array_equal(*bits)
    assert len(steps) <= 3


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (shape((8, 16), (1, 0)), shape((8, 16), (1, 0)), []),
        (shape((8, 16), (1, 0)), shape((8, 1, 16), (2, 1, 0)), ["reshape"]),
        (shape((8, 16), (1, 0)), shape((16, 8), (0, 1)), ["transpose"]),
        (shape((8, 16), (0, 1)), shape((8, 16, 1), (0, 1, 2)), ["reshape"]),  # no detour over memory order
        (shape((8, 16), (0, 1)), shape((8, 4, 4), (0, 2, 1)), ["reshape"]),
        (shape((8, 16), (1, 0)), shape((16, 2, 4), (0, 2, 1)), ["reshape", "transpose"]),
        (shape((6, 4), (1, 0)), shape((4, 6), (1, 0)), ["reshape"]),
        (shape((0, 4), (1, 0)), shape((4, 0), (0, 1)), ["reshape"]),
    ],
)
def test_nothing_is_done_in_vain(source: ArrayShape, target: ArrayShape, expected: list[str]) -> None:
    assert [s.op for s in bitcast_steps(source, target, "here")] == expected


def test_widths() -> None:
    words = shape((4,), (0,), "u32")
    assert [(s.op, s.dims) for s in bitcast_steps(words, shape((2,), (0,), "u64"), "here")] == [
        ("reshape", (2, 2)),
        ("bitcast-convert", (2,)),
    ]
    assert [(s.op, s.dims) for s in bitcast_steps(words, shape((2, 8), (1, 0), "u8"), "here")] == [
        ("bitcast-convert", (4, 4)),
        ("reshape", (2, 8)),
    ]
    assert [s.op for s in bitcast_steps(words, shape((4,), (0,), "f32"), "here")] == ["bitcast-convert"]
    with pytest.raises(GraphError, match=r"here: a bitcast .* changes the element width and the layout"):
        bitcast_steps(shape((4, 2), (0, 1), "u32"), shape((4, 8), (1, 0), "u8"), "here")
