"""Which programs a known fault strikes, by their optimized HLO."""

from __future__ import annotations

import pytest

from jax_stitch.jit.known_faults import FAULTS
from jax_stitch.jit.known_faults.struck import struck_by

SHIFTED = """HloModule m

%fused (p: s32[8,16]) -> s32[1,8,16] {
  %p = s32[8,16]{1,0} parameter(0)
  %bitcast.1 = s32[1,8,16]{2,1,0} bitcast(%p)
  %slice.1 = s32[ROWS,16]{1,0} slice(%p), slice={[FROM:END], [0:16]}
  %bitcast.2 = s32[1,ROWS,16]{2,1,0} bitcast(%slice.1)
  %zero = s32[] constant(0)
  %at = s32[] constant(TO)
  ROOT %update = s32[1,8,16]{2,1,0} dynamic-update-slice(%bitcast.1, %bitcast.2, %zero, %at, %zero)
}

ENTRY %main (x: s32[8,16]) -> s32[1,8,16] {
  %x = s32[8,16]{1,0} parameter(0)
  ROOT %fusion = s32[1,8,16]{2,1,0} fusion(%x), kind=kLoop, calls=%fused
}
"""

SUMMED = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused (p: f32[DIMS]) -> f32[REST] {
  %p = f32[DIMS] parameter(0)
  %square = f32[DIMS] multiply(%p, %p)
  %zero = f32[] constant(0)
  ROOT %reduce = f32[REST] reduce(%square, %zero), dimensions={0}, to_apply=%add
}

ENTRY %main (x: f32[DIMS]) -> f32[REST] {
  %x = f32[DIMS] parameter(0)
  ROOT %fusion = f32[REST] fusion(%x), kind=kCustom, calls=%fused, backend_config={"fusion_config":{"kind":"KIND"}}
}
"""


def shifted(first: int, end: int, to: int) -> str:
    text = SHIFTED.replace("ROWS", str(end - first)).replace("FROM", str(first))
    return text.replace("END", str(end)).replace("TO", str(to))


def summed(dims: str, kind: str) -> str:
    return SUMMED.replace("DIMS", dims).replace("REST", dims.partition(",")[2]).replace("KIND", kind)


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        pytest.param(shifted(0, 7, 1), {"shifted_update": ["fusion"]}, id="shifted"),
        pytest.param(shifted(1, 8, 1), {}, id="the same place"),
        pytest.param(summed("2,1,2,2,2,2,2", "__ynn_fusion"), {"high_rank_sum": ["fusion"]}, id="7 dimensions"),
        pytest.param(summed("2,1,2,2,2,2", "__ynn_fusion"), {}, id="6 dimensions"),
        pytest.param(summed("2,1,2,2,2,2,2", "__xnn_fusion"), {}, id="another library"),
    ],
)
def test_struck(text: str, struck: dict[str, list[str]]) -> None:
    """A fault that is not seen, so that results are wrong; or one seen where none is, which takes speed."""
    assert struck_by(text, FAULTS) == struck


def test_a_text_without_signs_is_not_read() -> None:
    """Reading all of a large program before its first call, which takes a second."""
    assert struck_by("no HLO", FAULTS) == {}
