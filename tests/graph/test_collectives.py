"""Collectives: those that run beside other work, and their packed forms, are the plain operations in a graph."""

from __future__ import annotations

import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend.replay import unsupported

_GROUPS = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"

CASES = {
    "all-reduce": (f"ROOT %r = f32[4] all-reduce(%x), {_GROUPS}, to_apply=%add", ["all-reduce"], ["f32[4]"]),
    "all-reduce of several": (
        f"ROOT %r = (f32[4], f32[]) all-reduce(%x, %y), {_GROUPS}, to_apply=%add",
        ["all-reduce", "get-tuple-element", "get-tuple-element"],
        ["f32[4]", "f32[]"],
    ),
    "all-reduce, apart": (
        f"%s = f32[4] all-reduce-start(%x), {_GROUPS}, to_apply=%add\n  ROOT %r = f32[4] all-reduce-done(%s)",
        ["all-reduce"],
        ["f32[4]"],
    ),
    "all-reduce of several, apart": (
        f"%s = (f32[4], f32[]) all-reduce-start(%x, %y), {_GROUPS}, to_apply=%add\n"
        "  ROOT %r = (f32[4], f32[]) all-reduce-done(%s)",
        ["all-reduce", "get-tuple-element", "get-tuple-element"],
        ["f32[4]", "f32[]"],
    ),
    "all-gather, apart": (
        f"%s = (f32[4], f32[16]) all-gather-start(%x), {_GROUPS}, dimensions={{0}}\n"
        "  ROOT %r = f32[16] all-gather-done(%s)",
        ["all-gather"],
        ["f32[16]"],
    ),
    "all-gather of several, apart": (
        f"%s = ((f32[4], f32[4]), (f32[16], f32[16])) all-gather-start(%x, %x), {_GROUPS}, dimensions={{0}}\n"
        "  ROOT %r = (f32[16], f32[16]) all-gather-done(%s)",
        ["all-gather", "get-tuple-element", "get-tuple-element"],
        ["f32[16]", "f32[16]"],
    ),
    "collective-permute, apart": (
        "%s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(%x), channel_id=2, source_target_pairs={{0,1}}\n"
        "  ROOT %r = f32[4] collective-permute-done(%s)",
        ["collective-permute"],
        ["f32[4]"],
    ),
    "reduce-scatter, in general form": (
        "%s = ((f32[4]), f32[1], u32[]) async-start(%x), calls=%scattered\n  ROOT %r = f32[1] async-done(%s)",
        ["reduce-scatter"],
        ["f32[1]"],
    ),
}

_COMPUTATIONS = f"""%add (p: f32[], q: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %sum = f32[] add(%p, %q)
}}

%scattered (a: f32[4]) -> f32[1] {{
  %a = f32[4] parameter(0)
  ROOT %b = f32[1] reduce-scatter(%a), {_GROUPS}, dimensions={{0}}, to_apply=%add
}}"""


@pytest.mark.parametrize("case", CASES)
def test_forms(case: str) -> None:
    body, ops, types = CASES[case]
    text = (
        f"HloModule m, num_partitions=4\n\n{_COMPUTATIONS}\n\nENTRY %main {{\n"
        f"  %x = f32[4] parameter(0)\n  %y = f32[] parameter(1)\n  {body}\n}}\n"
    )
    built = graph.build(hlo_parser.parse(text))
    graph.verify(built)
    assert [n.op for n in built.nodes if n.op != "parameter"] == ops
    assert [str(built[r].type) for r in built.results] == types
    assert unsupported(built) == []
