"""What cannot be replayed is told before anything is traced, by name and place."""

from __future__ import annotations

import re

import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend import replay
from jax_stitch.frontend.replay import ReplayError

_CALL = '%r = f32[4]{0} custom-call(%x), custom_call_target="mine"'

CASES = {
    "infeed": ("%k = token[] after-all()\n %r = (f32[4]{0}, token[]) infeed(%k)", "it reads from the host"),
    "outfeed": ("%k = token[] after-all()\n %r = token[] outfeed(%x, %k), outfeed_shape=f32[4]{0}", "it writes to the host"),  # noqa: E501
    "send": (
        "%k = token[] after-all()\n %r = (f32[4]{0}, u32[], token[]) send(%x, %k), channel_id=1, is_host_transfer=true",
        "it talks to another device or the host",
    ),
    "all-reduce of replicas": (
        "%r = f32[4]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add",
        "it works between replicas, not between partitions, of the program",
    ),
    "all-reduce of all": (
        "%r = f32[4]{0} all-reduce(%x), channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=%add",
        "it does not say which devices work together",
    ),
    "collective-permute of slices": (
        "%r = f32[4]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{2}}",
        "it moves slices",
    ),
    "ragged-all-to-all": ("%r = f32[4]{0} ragged-all-to-all(%x, %x), replica_groups={{0,1}}", "JAX has no operation for it"),  # noqa: E501
    "rng-get-and-update-state": ("%r = u64[1]{0} rng-get-and-update-state(), delta=1", "it changes random state kept inside XLA"),  # noqa: E501
    "custom-call of a later interface": (
        _CALL + ", api_version=API_VERSION_LATER",
        "the call to mine is by an interface of another version of XLA, API_VERSION_LATER",
    ),
    "custom-call of XLA's passes": (
        _CALL.replace("mine", "__cublas$odd"),
        "only XLA's own passes may write a call to __cublas$odd",
    ),
    "callback": (
        '%r = f32[4]{0} custom-call(%x), custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI',  # noqa: E501
        "it does not say which Python function it calls",
    ),
    "callback of another kind": (
        '%r = f32[4]{0} custom-call(%x), custom_call_target="xla_ffi_partitioned_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, backend_config={index = 0 : ui64}',  # noqa: E501
        "it calls back into Python (xla_ffi_partitioned_python_cpu_callback)",
    ),
    "smallest": ("%r = (f32[2]{0}, s32[2]{0}) topk(%x), k=2, largest=false", "the smallest elements of topk"),
    "unheard-of": ("%r = f32[4]{0} frobnicate(%x)", "JAX has no operation for it"),
}  # fmt: skip


_ADD = """%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}"""


def lines(instruction: str) -> str:
    """The instruction with its value in the result, so that it is needed."""
    name, shape = re.findall(r"(%r) = (.*?) [a-z-]+\(", instruction)[-1]
    return f"  %x = f32[4]{{0}} parameter(0)\n {instruction}\n ROOT %t = ({shape}) tuple({name})"


@pytest.mark.parametrize("case", CASES)
def test_reasons(case: str) -> None:
    instruction, reason = CASES[case]
    flat = graph.flatten(hlo_parser.parse(f"HloModule m\n{_ADD}\nENTRY %main {{\n{lines(instruction)}\n}}\n"))
    (found,) = replay.unsupported(flat)
    assert found.reason == reason
    assert str(found) == f"{found.node.op} (r): {reason}"


def test_loops_are_searched() -> None:
    loop = """
%body (s: f32[4]) -> f32[4] {
  %s.1 = f32[4]{0} parameter(0)
  ROOT %bad = f32[4]{0} frobnicate(%s.1), metadata={op_name="f" source_file="model.py" source_line=7}
}
%condition (c: f32[4]) -> pred[] {
  %c = f32[4]{0} parameter(0)
  ROOT %t = pred[] constant(true)
}
ENTRY %main {
  %x = f32[4]{0} parameter(0)
  ROOT %w = f32[4]{0} while(%x), condition=%condition, body=%body
}"""
    flat = graph.flatten(hlo_parser.parse(f"HloModule m\n{loop}\n"))
    assert [str(u) for u in replay.unsupported(flat)] == [
        "frobnicate (bad from model.py:7): JAX has no operation for it"
    ]
    with pytest.raises(ReplayError, match=r"frobnicate of body \(bad\) has no equal in JAX"):
        replay.replay(replay.StitchedGraph(flat))


def test_effects_are_seen_though_nothing_reads_them() -> None:
    text = """HloModule m
ENTRY %main {
  %x = f32[4]{0} parameter(0)
  %k = token[] after-all()
  %o = token[] outfeed(%x, %k), outfeed_shape=f32[4]{0}
  ROOT %n = f32[4]{0} negate(%x)
}
"""
    assert [u.node.op for u in replay.unsupported(graph.build(hlo_parser.parse(text)))] == ["outfeed"]
