"""Scatters into what another scatter has made are one launch."""

from __future__ import annotations

import numpy as np
import pytest

from jax_stitch.fusion.rewrites.scatters import joined
from tests.graph.helpers import both, ops, values

COMPUTATIONS = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
%newest (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  ROOT %d = f32[] parameter(1)
}
%one (p0: f32[6,3], p1: s32[4,1], p2: f32[4,1,3]) -> f32[6,3] {
  %p0 = f32[6,3]{1,0} parameter(0)
  %p1 = s32[4,1]{1,0} parameter(1)
  %p2 = f32[4,1,3]{2,1,0} parameter(2)
  %n = f32[4,1,3]{2,1,0} negate(%p2)
  ROOT %s1 = f32[6,3]{1,0} scatter(%p0, %p1, %n), update_window_dims={1,2}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%FIRST
}
%two (q0: f32[6,3], q1: s32[2,1], q2: f32[2,1,3]) -> f32[6,3] {
  %q0 = f32[6,3]{1,0} parameter(0)
  %q1 = s32[2,1]{1,0} parameter(1)
  %q2 = f32[2,1,3]{2,1,0} parameter(2)
  ROOT %s2 = f32[6,3]{1,0} scatter(%q0, %q1, %q2), update_window_dims={1,2}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%SECOND
}"""

ENTRY = """
  %t = f32[6,3]{1,0} parameter(0)
  %i = s32[4,1]{1,0} parameter(1)
  %u = f32[4,1,3]{2,1,0} parameter(2)
  %j = s32[2,1]{1,0} parameter(3)
  %v = f32[2,1,3]{2,1,0} parameter(4)
  %a = f32[6,3]{1,0} fusion(%t, %i, %u), kind=kInput, calls=%one
  %b = f32[6,3]{1,0} fusion(%a, %j, %v), kind=kInput, calls=%two
  """

TABLE = np.arange(18, dtype=np.float32).reshape(6, 3)
FIRST = np.int32([[0], [3], [3], [5]]), np.float32(np.arange(12).reshape(4, 1, 3))
SECOND = np.int32([[3], [1]]), np.float32(10 * np.arange(6).reshape(2, 1, 3))


def made(result: str, first: str = "add", second: str = "add") -> str:
    """What of the chain is left, as opcodes; its values stay."""
    flat, _ = both(ENTRY + result, COMPUTATIONS.replace("%FIRST", f"%{first}").replace("%SECOND", f"%{second}"))
    found = joined(flat)
    arguments = TABLE, *FIRST, *SECOND
    for got, wanted in zip(values(found, *arguments), values(flat, *arguments), strict=True):
        np.testing.assert_array_equal(got, wanted)
    kernels = {n.kernel for n in found.nodes if n.kernel}
    assert len(kernels) == ops(found).count("scatter")
    return " ".join(op for op in ops(found) if op != "parameter")


def test_a_chain_is_one_scatter_with_the_updates_of_both() -> None:
    """Updates that are left out, or go to the other's rows; a first kernel that stays for what nobody reads."""
    assert made("ROOT %r = f32[6,3]{1,0} copy(%b)").split().count("scatter") == 1


@pytest.mark.parametrize(
    ("result", "first", "second"),
    [
        ("ROOT %r = (f32[6,3]{1,0}, f32[6,3]{1,0}) tuple(%a, %b)", "add", "add"),
        ("ROOT %r = f32[6,3]{1,0} copy(%b)", "add", "newest"),
        ("ROOT %r = f32[6,3]{1,0} copy(%b)", "newest", "newest"),
    ],
    ids=["read in between", "of another kind", "the last one counts"],
)
def test_others_stay_two(result: str, first: str, second: str) -> None:
    """The result in between is gone; or the order of the updates counts."""
    assert made(result, first, second).split().count("scatter") == 2


def test_what_others_read_of_the_first_kernel_stays_there() -> None:
    """Catches: two launches over the table, since the updates of the first are read elsewhere; or a kernel of both that
    others wait for before it has all that it waits for.
    """
    third = """
%three (r2: f32[4,1,3]) -> f32[4,1,3] {
  %r2 = f32[4,1,3]{2,1,0} parameter(0)
  %m = f32[4,1,3]{2,1,0} negate(%r2)
  ROOT %e = f32[4,1,3]{2,1,0} exponential(%m)
}"""
    result = """%c = f32[4,1,3]{2,1,0} fusion(%u), kind=kLoop, calls=%three
  ROOT %r = (f32[6,3]{1,0}, f32[4,1,3]{2,1,0}) tuple(%b, %c)"""
    flat, _ = both(ENTRY + result, (COMPUTATIONS + third).replace("%FIRST", "%add").replace("%SECOND", "%add"))
    found = joined(flat)
    assert ops(found).count("scatter") == 1 and ops(found).count("negate") == 1
    for got, wanted in zip(values(found, TABLE, *FIRST, *SECOND), values(flat, TABLE, *FIRST, *SECOND), strict=True):
        np.testing.assert_array_equal(got, wanted)
    negated = next(n for n in found.nodes if n.op == "negate")
    scattered = next(n for n in found.nodes if n.op == "scatter")
    assert negated.kernel != scattered.kernel
