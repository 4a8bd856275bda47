"""Modules such as XLA's own tests have: some end the process that reads them, and some are large and say little."""

from __future__ import annotations

import os
import re

import jax
import pytest

import hlo_parser
from jax_stitch import HloFileError, plan_hlo
from jax_stitch.frontend.hlo_files import read
from jax_stitch.frontend.hlo_files.translate import TRANSLATOR

AROUND = "HloModule m{header}\n{called}ENTRY e {{\n  p = f32[128] parameter(0)\n{body}\n}}\n"
ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }\n"
SLICES = """  q = f32[256] parameter(1)
  z = s32[] constant(0)
  a = f32[256] collective-permute(p, q, z, z), source_target_pairs={{0,1},{1,0}}, slice_sizes={{128}}
  ROOT b = f32[256] add(a, a)"""
TALKING = {
    "send and receive": """  t = token[] after-all()
  s = (f32[128], u32[], token[]) send(p, t), channel_id=1
  d = token[] send-done(s), channel_id=1
  r = (f32[128], u32[], token[]) recv(t), channel_id=2
  rd = (f32[128], token[]) recv-done(r), channel_id=2
  g = f32[128] get-tuple-element(rd), index=0
  ROOT a = f32[128] add(g, p)""",
    "all-reduce started": """  s = f32[128] all-reduce-start(p), replica_groups={}, to_apply=add
  a = f32[128] all-reduce-done(s)
  ROOT b = f32[128] add(a, a)""",
    "permutation started": """  s = (f32[128], f32[128]) collective-permute-start(p), source_target_pairs={{0,1},{1,0}}
  a = f32[128] collective-permute-done(s)
  ROOT b = f32[128] add(a, a)""",
    "permutation of several": """  s = ((f32[128], f32[128]), (f32[128], f32[128])) collective-permute-start(p, p),
    source_target_pairs={{0,1},{1,0}}
  d = (f32[128], f32[128]) collective-permute-done(s)
  a = f32[128] get-tuple-element(d), index=0
  ROOT b = f32[128] add(a, a)""",
    "permutation of slices": SLICES,
    "infeed": """  t = token[] after-all()
  i = ((f32[128], s32[]), token[]) infeed(t)
  d = (f32[128], s32[]) get-tuple-element(i), index=0
  g = f32[128] get-tuple-element(d), index=0
  ROOT b = f32[128] add(g, p)""",
    "outfeed": """  t = token[] after-all()
  o = token[] outfeed(p, t), outfeed_shape=f32[128]
  ROOT b = f32[128] add(p, p)""",
    "asynchronous call": """  s = ((f32[128]), f32[128], u32[]) custom-call-start(p), custom_call_target="foo"
  d = f32[128] custom-call-done(s)
  ROOT b = f32[128] add(d, d)""",
}
HOST = """  %s = (f32[{n},1024]{{1,0:S(5)}}, f32[{n},1024], u32[]) copy-start(%{of})
  %d = f32[{n},1024]{{1,0:S(5)}} copy-done(%s)
  %back = (f32[{n},1024], f32[{n},1024]{{1,0:S(5)}}, u32[]) copy-start(%d)
  %h = f32[{n},1024] copy-done(%back)
  ROOT %r = f32[{n},1024] add(%h, %h)"""


@pytest.mark.parametrize("name", TALKING)
def test_a_module_that_talks_is_planned_or_refused(name: str) -> None:
    """Catches XLA's readers, translators or compilers at work in this process, which some of these end."""
    text = AROUND.format(header="", called=ADD, body=TALKING[name])
    try:
        plan = plan_hlo(text, device="h200")
    except HloFileError as error:
        assert len(str(error).splitlines()) <= 3
        assert re.search(r"dump it again|take out what", str(error))
    else:
        assert plan.launches <= plan.xla_launches


def test_a_reader_that_crashes_says_so_and_the_next_program_is_read() -> None:
    """Catches a crash that ends this process, or that the reader does not come back from."""
    crashing = AROUND.format(header="", called="", body=SLICES)
    with pytest.raises(HloFileError) as caught:
        read(crashing)
    lines = str(caught.value).splitlines()
    assert re.fullmatch(r"the text: XLA's reader crashes on it, in a process of its own, which died .*", lines[0])
    assert "dump it again" in lines[1] and "it may be a:" in lines[1] and len(lines) == 2
    fine = AROUND.format(header="", called="", body="  ROOT b = f32[128] negate(p)")
    assert read(fine).results == (jax.ShapeDtypeStruct((128,), "float32"),)
    assert TRANSLATOR.child is not None and TRANSLATOR.child.pid != os.getpid()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32", "pred", "c64"])
def test_large_values_that_are_left_out_are_never_written(dtype: str) -> None:
    """Catches gigabytes that are made up, element by element, for values that nobody knows."""
    text = f"HloModule m\nENTRY e {{\n  ROOT c = {dtype}[8,6,2048,2048] constant({{...}})\n}}\n"
    program = read(text)
    assert len(program.text) < 1 << 26 and len(program.stablehlo) < 1 << 24
    constant, result = hlo_parser.parse(program.text).entry.instructions[:2]
    assert constant.opcode == "constant" and result.opcode == "broadcast" and str(result.shape).startswith(dtype)
    assert program.unrunnable is not None and "1 constants have no value" in program.notes[0]


def test_values_that_are_left_out_differ() -> None:
    """Catches two constants that are taken for one, in a tuple, in a row, and where rows are alike."""
    text = """HloModule m
ENTRY e {
  a = f32[3000,1000] constant({...})
  b = f32[3000,1000] constant({...})
  c = (f32[100], (s32[50], pred[], f32[2000,1000])) constant(({...}, ({...}, true, {...})))
  d = f32[3000000] constant({...})
  e = (s32[], pred[2]) constant((7, {1, 0}))
  f = s32[] get-tuple-element(e), index=0
  g = (s32[50], pred[], f32[2000,1000]) get-tuple-element(c), index=1
  h = f32[2000,1000] get-tuple-element(g), index=2
  ROOT t = (f32[3000,1000], f32[3000,1000], f32[2000,1000], f32[3000000], s32[]) tuple(a, b, h, d, f)
}
"""
    program = read(text)
    values = [i.literal for i in hlo_parser.parse(program.text).entry if i.literal is not None]
    assert not any(v.missing for v in values) and len(values) == len(set(values)) == 9
    assert "6 constants" in program.notes[0] and plan_hlo(text, device="cpu").unstitched is None


@pytest.mark.parametrize("of", ["p", "c"])
def test_large_arrays_on_the_host(of: str) -> None:
    """Catches minutes for an array that moves to the host's memory (S(5)) and back."""
    made = "  %c = f32[400000,1024] constant({...})\n" if of == "c" else ""
    text = f"HloModule m\nENTRY e {{\n  %p = f32[400000,1024] parameter(0)\n{made}{HOST.format(n=400000, of=of)}\n}}\n"
    plan = plan_hlo(text, device="h200")
    assert plan.unstitched is None and 0 < plan.launches <= plan.xla_launches


FUSIONS = """HloModule m, is_scheduled=true
f {{
  x = f32[1024] parameter(0)
  a = f32[1024] exponential(x)
  b = f32[1024] negate(x)
  ROOT t = (f32[1024], f32[1024]) tuple(a, b)
}}
g {{
  x = f32[2048] parameter(0)
  a = f32[2048] exponential(x)
  b = f32[2048] negate(x)
  ROOT t = (f32[2048], f32[2048]) tuple(a, b)
}}
ENTRY e {{
  p = f32[1024] parameter(0)
  q = f32[2048] parameter(1)
  w = (f32[8], s32[]) parameter(2)
  k = f32[8] constant({{1, 2, 3, 4, 5, 6, 7, 8}})
  a = (f32[1024], f32[1024]) fusion(p), kind=kLoop, calls=f
  b = (f32[2048], f32[2048]) fusion(q), kind=kLoop, calls=g
  a0 = f32[1024] get-tuple-element(a), index=0
  a1 = f32[1024] get-tuple-element(a), index=1
  b0 = f32[2048] get-tuple-element(b), index=0
  b1 = f32[2048] get-tuple-element(b), index=1
  v = f32[512,2] bitcast(p)
  {copies}
  ROOT r = ({types}) tuple({results})
}}
"""
T1, T2 = "f32[1024]", "f32[2048]"
RETURNED: dict[str, tuple[str, str, int]] = {
    "two parameters": ("p, q, a0, a1, b0, b1", f"{T1}, {T2}, {T1}, {T1}, {T2}, {T2}", 2),
    "a view of one": ("a0, a1, b0, b1, v", f"{T1}, {T1}, {T2}, {T2}, f32[512,2]", 1),
    "a tuple": ("w, a0, a1, b0, b1", f"(f32[8], s32[]), {T1}, {T1}, {T2}, {T2}", 2),
    "a constant": ("k, a0, a1, b0, b1", f"f32[8], {T1}, {T1}, {T2}, {T2}", 1),
    "one result twice": ("a0, a1, b0, b1, a0", f"{T1}, {T1}, {T2}, {T2}, {T1}", 1),
    "copies that are there": ("pc, a0, a1, b0, b1", f"{T1}, {T1}, {T1}, {T2}, {T2}", 0),
    "no parameter": ("a0, a1, b0, b1", f"{T1}, {T1}, {T2}, {T2}", 0),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", RETURNED)
def test_a_plan_has_no_more_launches_where_parameters_are_returned(name: str, device: str) -> None:
    """Catches copies of results that were counted for the stitched program alone: 2 launches became 4."""
    results, types, added = RETURNED[name]
    copies = "pc = f32[1024] copy(p)" if "pc" in results else ""
    text = FUSIONS.format(copies=copies, types=types, results=results)
    plan = plan_hlo(text, device=device)
    assert plan.launches <= plan.xla_launches == 2 + added + len(copies.split()[:1])
    assert not hlo_parser.verify(hlo_parser.parse(read(text).own_text))
