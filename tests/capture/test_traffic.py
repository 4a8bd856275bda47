"""Launches and bytes: by hand on small modules, and against the figures that the design was made from."""

from __future__ import annotations

from typing import Any

import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture.traffic import Traffic, traffic

CPU = devices.get("cpu")


def module(entry: str, computations: str = "") -> str:
    return f"HloModule m, is_scheduled=true\n\n{computations}\n\nENTRY %main {entry}\n"


def single(entry: str, computations: str = "") -> tuple[int, int]:
    counted = traffic(module(entry, computations))
    return counted.launches, counted.bytes


FUSED_SLICE = """%fused (p0: f32[1000,8], p1: s32[], p2: f32[8]) -> f32[8] {
  %p0 = f32[1000,8]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[8]{0} parameter(2)
  %zero = s32[] constant(0)
  %view = f32[8000]{0} bitcast(%p0)
  %whole = f32[1000,8]{1,0} bitcast(%view)
  %row = f32[1,8]{1,0} dynamic-slice(%whole, %p1, %zero), dynamic_slice_sizes={1,8}
  %flat = f32[8]{0} bitcast(%row)
  ROOT %sum = f32[8]{0} add(%flat, %p2)
}"""


FUSED_SLICE_AND_SUM = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
%fused (p0: f32[1000,8]) -> (f32[1,8], f32[8]) {
  %p0 = f32[1000,8]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %row = f32[1,8]{1,0} slice(%p0), slice={[3:4], [0:8]}
  %sum = f32[8]{0} reduce(%p0, %zero), dimensions={0}, to_apply=%add
  ROOT %both = (f32[1,8]{1,0}, f32[8]{0}) tuple(%row, %sum)
}"""


FUSED_UPDATE = """%fused (p0: f32[1000,8], p1: s32[], p2: f32[8]) -> f32[1000,8] {
  %p0 = f32[1000,8]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[8]{0} parameter(2)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} bitcast(%p2)
  ROOT %done = f32[1000,8]{1,0} dynamic-update-slice(%p0, %row, %p1, %zero)
}"""


FUSED_UPDATE_OF_ZEROS = """%fused (p1: s32[], p2: f32[8]) -> f32[1000,8] {
  %p1 = s32[] parameter(0)
  %p2 = f32[8]{0} parameter(1)
  %zero = s32[] constant(0)
  %nought = f32[] constant(0)
  %zeros = f32[1000,8]{1,0} broadcast(%nought), dimensions={}
  %row = f32[1,8]{1,0} bitcast(%p2)
  ROOT %done = f32[1000,8]{1,0} dynamic-update-slice(%zeros, %row, %p1, %zero)
}"""


FUSED_TWICE = """%fused (p0: f32[10], p1: f32[10]) -> f32[10] {
  %p0 = f32[10]{0} parameter(0)
  %p1 = f32[10]{0} parameter(1)
  ROOT %sum = f32[10]{0} add(%p0, %p1)
}"""


ARGUMENTS = """  %a = f32[1000,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %b = f32[8]{0} parameter(2)
"""


SIGNATURE = "(a: f32[1000,8], i: s32[], b: f32[8])"


@pytest.mark.parametrize(
    ("entry", "computations", "size"),
    [
        pytest.param(
            f"{SIGNATURE} -> f32[8] {{\n{ARGUMENTS}"
            "  ROOT %f = f32[8]{0} fusion(%a, %i, %b), kind=kLoop, calls=%fused\n}",
            FUSED_SLICE,
            32 + 4 + 32 + 32,
            id="a slice is read, not the array",
        ),
        pytest.param(
            "(a: f32[1000,8]) -> (f32[1,8], f32[8]) {\n  %a = f32[1000,8]{1,0} parameter(0)\n"
            "  ROOT %f = (f32[1,8]{1,0}, f32[8]{0}) fusion(%a), kind=kInput, calls=%fused\n}",
            FUSED_SLICE_AND_SUM,
            32000 + 32 + 32,
            id="sliced and also read whole",
        ),
        pytest.param(
            f"{SIGNATURE} -> f32[1000,8] {{\n{ARGUMENTS}"
            "  ROOT %f = f32[1000,8]{1,0} fusion(%a, %i, %b), kind=kLoop, calls=%fused\n}",
            FUSED_UPDATE,
            4 + 32 + 32,
            id="updated in place",
        ),
        pytest.param(
            f"{SIGNATURE} -> f32[1000,8] {{\n{ARGUMENTS}"
            "  ROOT %f = f32[1000,8]{1,0} fusion(%i, %b), kind=kLoop, calls=%fused\n}",
            FUSED_UPDATE_OF_ZEROS,
            4 + 32 + 32000,
            id="an update of what the fusion itself made",
        ),
        pytest.param(
            "(a: f32[10]) -> f32[10] {\n  %a = f32[10]{0} parameter(0)\n"
            "  ROOT %f = f32[10]{0} fusion(%a, %a), kind=kLoop, calls=%fused\n}",
            FUSED_TWICE,
            40 + 40,
            id="an operand given twice is read once",
        ),
        pytest.param(
            f"{SIGNATURE} -> f32[1000,8] {{\n{ARGUMENTS}  %z = s32[] constant(0)\n  %r = f32[1,8]{{1,0}} bitcast(%b)\n"
            "  ROOT %u = f32[1000,8]{1,0} dynamic-update-slice(%a, %r, %i, %z)\n}",
            "",
            32 + 32 + 4 + 4,
            id="an update outside a fusion",
        ),
        pytest.param(
            "(a: bf16[6], b: pred[6]) -> s4[6] {\n  %a = bf16[6]{0} parameter(0)\n  %b = pred[6]{0} parameter(1)\n"
            '  ROOT %c = s4[6]{0:E(4)} custom-call(%a, %b), custom_call_target="anything"\n}',
            "",
            12 + 6 + 3,
            id="element sizes",
        ),
        pytest.param(
            "(a: f32[6]) -> (f32[6], s8[4096]) {\n  %a = f32[6]{0} parameter(0)\n"
            '  ROOT %c = (f32[6]{0}, s8[4096]{0}) custom-call(%a), custom_call_target="__cublas$gemm"\n}',
            "",
            24 + 24,
            id="the workspace of a library call does not count",
        ),
    ],
)
def test_bytes_of_one_kernel(entry: str, computations: str, size: int) -> None:
    assert single(entry, computations) == (1, size)


def test_what_only_names_or_waits_launches_nothing() -> None:
    counted = traffic(
        module(
            """(a: f32[8], b: f32[8]) -> (f32[4,2], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %c = f32[] constant(1)
  %v = f32[4,2]{1,0} bitcast(%a)
  %s = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%b)
  %d = f32[8]{0} copy-done(%s)
  ROOT %t = (f32[4,2]{1,0}, f32[8]{0}) tuple(%v, %d)
}"""
        )
    )
    assert [(k.name, k.launches, k.bytes) for k in counted.kernels] == [("s", 1, 64)]


LOOP = """%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %t = (s32[], f32[8]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8]{{0}} get-tuple-element(%t), index=1
  %step = s32[] constant({step})
  %next = s32[] add(%i, %step)
  %y = f32[8]{{0}} negate(%x)
  ROOT %r = (s32[], f32[8]{{0}}) tuple(%next, %y)
}}
%test (p: s32[], q: s32[]) -> pred[] {{
  %p = s32[] parameter(0)
  %q = s32[] parameter(1)
  ROOT %less = pred[] compare(%p, %q), direction={direction}
}}
%condition (t: (s32[], f32[8])) -> pred[] {{
  %t = (s32[], f32[8]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %limit = s32[] constant({limit})
  ROOT %go = pred[] fusion(%i, %limit), kind=kLoop, calls=%test
}}"""


LOOP_ENTRY = """(x: f32[8], n: s32[]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant({start})
  %first = s32[] copy({init})
  %t = (s32[], f32[8]{{0}}) tuple(%first, %x)
  %loop = (s32[], f32[8]{{0}}) while(%t), condition=%condition, body=%body{config}
  ROOT %y = f32[8]{{0}} get-tuple-element(%loop), index=1
}}"""


def loop(
    start: int = 0, limit: int = 10, step: int = 1, direction: str = "LT", init: str = "%zero", config: str = ""
) -> Traffic:
    entry = LOOP_ENTRY.format(start=start, init=init, config=config)
    return traffic(module(entry, LOOP.format(step=step, limit=limit, direction=direction)))


def test_a_loop_counts_body_and_condition_once_per_trip() -> None:
    counted = loop(config=', backend_config={"known_trip_count":{"n":"7"}}')
    assert {k.name: k.launches for k in counted.kernels} == {"first": 1, "next": 7, "y": 7, "go": 7}
    assert {k.name: k.bytes for k in counted.kernels}["y"] == 7 * 64


@pytest.mark.parametrize(
    ("settings", "trips"),
    [
        ({}, 10),
        ({"start": 3}, 7),
        ({"step": 3}, 4),
        ({"direction": "LE"}, 11),
        ({"start": 20}, 0),
    ],
)
def test_trips_by_the_counter(settings: dict[str, Any], trips: int) -> None:
    counted = loop(**settings)
    assert counted.unknown_trips == ()
    assert counted.launches == 1 + 3 * trips


@pytest.mark.parametrize("settings", [{"init": "%n"}, {"step": -1}, {"step": 0}, {"direction": "NE"}])
def test_a_loop_of_unknown_length_counts_once_and_is_named(settings: dict[str, Any]) -> None:
    counted = loop(**settings)
    assert counted.unknown_trips == ("loop",) and counted.launches == 1 + 3
    assert "loop of unknown length" in str(counted)


def test_a_conditional_counts_as_its_costliest_branch() -> None:
    branches = """%cheap (x: f32[8]) -> f32[8] {
  ROOT %x = f32[8]{0} parameter(0)
}
%dear (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} negate(%x)
  ROOT %z = f32[8]{0} abs(%y)
}"""
    entry = """(i: s32[], x: f32[8]) -> f32[8] {
  %i = s32[] parameter(0)
  %x = f32[8]{0} parameter(1)
  ROOT %c = f32[8]{0} conditional(%i, %x, %x, %x), branch_computations={%cheap, %dear, %cheap}
}"""
    assert single(entry, branches) == (2, 128)
    entry = entry.replace("s32[]", "pred[]").replace("%x, %x, %x", "%x, %x")
    entry = entry.replace(
        "branch_computations={%cheap, %dear, %cheap}", "true_computation=%cheap, false_computation=%dear"
    )
    assert single(entry, branches) == (2, 128)


def test_calls_and_asynchronous_computations_are_looked_into() -> None:
    called = """%inner (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} negate(%x)
}
%inner2 (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  ROOT %y.1 = f32[8]{0} negate(%x.1)
}"""
    entry = """(x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %c = f32[8]{0} call(%x), to_apply=%inner
  %s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(%c), calls=%inner2
  ROOT %d = f32[8]{0} async-done(%s)
}"""
    assert single(entry, called) == (2, 128)


def test_a_fusion_that_is_started_and_waited_for_is_one_launch() -> None:
    """Loops of jax 0.11 on a GPU: counted twice, a plan seemed to have more launches than under 0.10, and XLA too."""
    called = """%fused (x: f32[8], y: f32[64]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[64]{0} parameter(1)
  %s = f32[8]{0} slice(%y), slice={[8:16]}
  ROOT %z = f32[8]{0} add(%x, %s)
}"""
    started = """(x: f32[8], y: f32[64]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[64]{0} parameter(1)
  %s = ((f32[8]{0}, f32[64]{0}), f32[8]{0}, u32[]) fusion-start(%x, %y), kind=kLoop, calls=%fused
  ROOT %d = f32[8]{0} fusion-done(%s)
}"""
    at_once = """(x: f32[8], y: f32[64]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[64]{0} parameter(1)
  ROOT %d = f32[8]{0} fusion(%x, %y), kind=kLoop, calls=%fused
}"""
    assert single(started, called) == single(at_once, called) == (1, 96)


@pytest.mark.parametrize(
    ("target", "library"),
    [("__cublas$gemm", True), ("cusolver_potrf_ffi", True), ("lapack_spotrf_ffi", True), ("__gpu$xla.gpu.ptx", False)],
)
def test_library_calls_are_told_from_our_kernels(target: str, library: bool) -> None:
    call = f'custom-call(%x), custom_call_target="{target}"'
    entry = f"(x: f32[8]) -> f32[8] {{\n  %x = f32[8]{{0}} parameter(0)\n  ROOT %c = f32[8]{{0}} {call}\n}}"
    counted = traffic(module(entry))
    assert counted.kernels[0].library is library
    assert counted.library_launches == int(library)


def test_operands_that_are_not_read() -> None:
    """What XLA's dispatch needs beside a call of ours; ``%c`` is read by another, ``%p0`` by the call itself."""
    text = module("""(p0: f32[100]) -> f32[100] {
  %p0 = f32[100]{0} parameter(0)
  %a = f32[10]{0} slice(%p0), slice={[0:10]}
  %b = f32[50]{0} pad(%a, %a), padding=0_40
  %c = f32[100]{0} negate(%p0)
  %call = f32[100]{0} custom-call(%p0, %b, %c), custom_call_target="own"
  ROOT %sum = f32[100]{0} add(%call, %c)
}""")
    counted = traffic(text, lambda i: i.operands[1:] if i.opcode == "custom-call" else ())
    assert [(k.name, k.bytes) for k in counted.kernels] == [("c", 800), ("call", 800), ("sum", 1200)]
    assert [k.name for k in traffic(text).kernels] == ["a", "b", "c", "call", "sum"]
