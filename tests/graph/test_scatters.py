"""Scatters that become selects, and those that stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.helpers import assert_equal, both, ops
from tests.some import some

COMBINERS = {
    "add": "ROOT %c = f32[] add(%a, %b)",
    "set": "ROOT %c = f32[] parameter(1)",
    "mixed": "%k = f32[] constant(2)\n %m = f32[] multiply(%a, %k)\n ROOT %c = f32[] subtract(%m, %b)",
}


def scatter(
    rows: str, indices: str, attributes: str, updates: str, combiner: str = "add", n: int = 5
) -> tuple[str, str]:
    second = "" if combiner == "set" else "%b = f32[] parameter(1)"
    computation = f"""
%combine (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  {second}
  {COMBINERS[combiner]}
}}"""
    body = f"""
  %o = f32[{n},7]{{1,0}} parameter(0)
  %y = s32[5]{{0}} parameter(1)
  %u = {updates} parameter(2)
  %rows = {rows}
  %cols = s32[5,1]{{1,0}} reshape(%y)
  %ix = {indices}
  ROOT %s = f32[{n},7]{{1,0}} scatter(%o, %ix, %u), {attributes}, to_apply=%combine"""
    return body, computation


IOTA = "s32[5,1]{1,0} iota(), iota_dimension=0"
PAIRS = "s32[5,2]{1,0} concatenate(%rows, %cols), dimensions={1}"
ELEMENTS = "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1"
POINTS = "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1"


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(
    ("case", "updates"),
    [
        ({"rows": IOTA, "indices": PAIRS, "attributes": ELEMENTS}, (5, 1, 1)),
        ({"rows": IOTA, "indices": PAIRS, "attributes": POINTS}, (5,)),
        # the columns swapped
        (
            {
                "rows": IOTA,
                "indices": "s32[5,2]{1,0} concatenate(%cols, %rows), dimensions={1}",
                "attributes": POINTS.replace("operand_dims={0,1}", "operand_dims={1,0}"),
            },
            (5,),
        ),
        # rows as a batching dimension
        (
            {
                "rows": IOTA,
                "indices": "s32[5,1]{1,0} reshape(%y)",
                "attributes": "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
                "input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1",
            },
            (5,),
        ),
        # whole rows, permuted by nothing
        (
            {
                "rows": IOTA,
                "indices": "s32[5,1]{1,0} copy(%rows)",
                "attributes": "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",  # noqa: E501
            },
            (5, 7),
        ),
    ],
)
def test_scatter_by_row_is_a_select(case: dict[str, str], updates: tuple[int, ...], combiner: str) -> None:
    layout = ",".join(str(d) for d in reversed(range(len(updates))))
    flat, built = both(*scatter(**case, updates=f"f32[{','.join(map(str, updates))}]{{{layout}}}", combiner=combiner))
    assert "scatter" in ops(flat) and "scatter" not in ops(built)
    rng = np.random.default_rng(3)
    o, u = rng.integers(-9, 9, (5, 7)).astype(np.float32), rng.integers(-9, 9, updates).astype(np.float32)
    for y in ([0, 6, 3, 3, 1], [7, -1, 2**31 - 1, -(2**31), 6]):  # the second mostly out of range: skipped
        assert_equal(flat, built, o, np.int32(y), u, at_once=True)


@pytest.mark.parametrize("combiner", ["add", "set"])
@settings(max_examples=some(8, of=30), deadline=None)
@given(data=st.data())
def test_scatter_to_spaced_places_is_a_select(combiner: str, data: st.DataObject) -> None:
    """A place too far, an update in another's place, dimensions of the updates in another order."""
    start, step, count = (data.draw(st.integers(low, high)) for low, high in ((0, 2), (1, 3), (2, 5)))
    past, axis, inserted = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)), data.draw(st.booleans())
    first = data.draw(st.booleans())  # The updates' own dimension, before the window's or after.
    dims = [3, 3]
    dims[axis] = start + (count - 1) * step + 1 + past
    window = [3] if inserted else [1, 3] if axis == 0 else [3, 1]
    shape = [count, *window] if first else [*window, count]
    places = ",".join(str(d + first) for d in range(len(window)))
    second = "" if combiner == "set" else "%b = f32[] parameter(1)"
    body = f"""
  %o = f32[{dims[0]},{dims[1]}]{{1,0}} parameter(0)
  %u = f32[{",".join(map(str, shape))}]{{{",".join(map(str, reversed(range(len(shape)))))}}} parameter(1)
  %k = s32[{count}]{{0}} iota(), iota_dimension=0
  %by = s32[] constant({step})
  %wide = s32[{count}]{{0}} broadcast(%by), dimensions={{}}
  %m = s32[{count}]{{0}} multiply(%k, %wide)
  %from = s32[] constant({start})
  %base = s32[{count}]{{0}} broadcast(%from), dimensions={{}}
  %at = s32[{count}]{{0}} add(%base, %m)
  %ix = s32[{count},1]{{1,0}} reshape(%at)
  ROOT %s = f32[{dims[0]},{dims[1]}]{{1,0}} scatter(%o, %ix, %u), update_window_dims={{{places}}}, inserted_window_dims={{{axis if inserted else ""}}}, scatter_dims_to_operand_dims={{{axis}}}, index_vector_dim=1, to_apply=%combine"""  # noqa: E501
    computation = f"""
%combine (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  {second}
  {COMBINERS[combiner]}
}}"""
    flat, built = both(body, computation)
    assert "scatter" in ops(flat) and "scatter" not in ops(built)
    rng = np.random.default_rng(3)
    assert_equal(flat, built, *(rng.integers(-9, 9, s).astype(np.float32) for s in (dims, shape)), at_once=True)


@pytest.mark.parametrize(
    "case",
    [
        {"rows": "s32[5,1]{1,0} reshape(%y)", "indices": PAIRS, "attributes": POINTS},  # rows may meet
        {"rows": IOTA, "indices": PAIRS, "attributes": POINTS, "n": 9},  # rows past the last index
        {
            "rows": IOTA,
            "indices": PAIRS,
            "attributes": "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1",  # noqa: E501
            "updates": "f32[5,3]{1,0}",
        },  # a slice of each row
    ],
)
def test_other_scatters_stay(case: dict[str, str]) -> None:
    flat, built = both(*scatter(**{"updates": "f32[5]{0}", **case}))
    assert "scatter" in ops(built)
    updates = np.ones(flat[flat.parameters[2]].tensor.dims, np.float32)
    assert_equal(flat, built, np.zeros(flat[0].tensor.dims, np.float32), np.int32([1, 4, 1, 0, 4]), updates)
