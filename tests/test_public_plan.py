"""The plan as a value: its figures, its text, its JSON, its page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic
from jax_stitch.inspect.page.highlight import STYLES, highlight
from jax_stitch.inspect.report.plan import Boundary, KernelPlan, Launch, Plan

HLO = """HloModule jit_f

ENTRY %main (x: f32[8,4]) -> f32[8,4] {
  %x = f32[8,4]{1,0} parameter(0), metadata={op_name="x"}
  %exp.1 = f32[8,4]{1,0} exponential(%x), metadata={op_name="jit(f)/exp"}
  ROOT %add.2 = f32[8,4]{1,0} add(%exp.1, %x)
}
"""

KERNEL = KernelPlan(
    name="stitched_exp",
    source='#include "stitch.h"\n// a < b && c\nfloat f(float x) { return x < 2.0f ? x : 1e-5f; }\n',
    launch=Launch(grid=1024, block=256, shared_bytes=4096),
    ops=("exp.1", "add.2"),
    xla_kernels=("fusion.1", "fusion.2"),
    composition=("thread", "block"),
    schedule="one row per block",
    bytes_read=128,
    bytes_written=128,
)


class Counter:
    """Counts how often a program is compiled to be counted."""

    def __init__(self, *kernels: KernelTraffic) -> None:
        self.traffic = Traffic(tuple(kernels))
        self.calls = 0

    def __call__(self) -> Traffic:
        self.calls += 1
        return self.traffic


def make_plan(**changes: object) -> Plan:
    plan = Plan(
        function="f",
        device=devices.get("h200"),
        kernels=(KERNEL,),
        boundaries=(
            Boundary("dot.1", "dot", "matrix products stay with XLA"),
            Boundary("sort.1", "sort", "sorting is not stitched", kernel="sort.1"),
            Boundary("dot.2", "dot", "matrix products stay with XLA"),
        ),
        bound_bytes=256,
        hlo=HLO,
        count_xla=Counter(
            KernelTraffic("fusion.1", "fusion", 3, 300, False), KernelTraffic("gemm", "custom-call", 1, 212, True)
        ),
        count_stitched=Counter(KernelTraffic("call.1", "custom-call", 1, 256, False)),
        notes=("a <note>",),
        seconds={"capture": 0.25},
    )
    return dataclasses.replace(plan, **changes)


def test_programs_are_counted_on_first_access_and_once() -> None:
    """Printing a plan's kernels must not compile two programs; printing it twice must not compile them twice."""
    plan = make_plan()
    assert (plan.count_xla.calls, plan.count_stitched.calls) == (0, 0)
    assert (plan.launches, plan.xla_launches, plan.bytes, plan.xla_bytes) == (1, 4, 256, 512)
    assert str(plan) and plan.to_json()
    assert (plan.count_xla.calls, plan.count_stitched.calls) == (1, 1)


def test_text_shows_figures_kernels_and_boundaries() -> None:
    text = str(make_plan())
    assert "f on h200" in text
    for shown in ("launches", "4x fewer", "bytes / bound", "2.00x", "1.00x", "stitched_exp", "thread+block"):
        assert shown in text, shown
    assert "1,024 x 256, 4.1 kB shared" in text
    assert "a <note>" in text and "capture 250 ms" in text
    dots, sorts = (next(line for line in text.splitlines() if op in line.split()) for op in ("dot", "sort"))
    assert dots.split()[0] == "2" and sorts.split()[0] == "1"


def test_text_of_a_plan_without_kernels() -> None:
    text = str(make_plan(kernels=(), boundaries=(), bound_bytes=0))
    assert "No stitched kernels" in text and "nan" not in text and "left to XLA" not in text


def test_loops_of_unknown_length_are_told() -> None:
    plan = make_plan(count_xla=lambda: Traffic((), unknown_trips=("while.3",)))
    assert "while.3" in str(plan) and "while.3" in plan.to_json()


def test_json_has_every_figure() -> None:
    read = json.loads(make_plan().to_json())
    assert read["launches"] == 1 and read["xla_launches"] == 4 and read["device"] == "h200"
    assert read["kernels"][0]["launch"] == {"grid": 1024, "block": 256, "shared_bytes": 4096}
    assert read["kernels"][0]["source"] == KERNEL.source
    assert read["boundaries"][1] == {
        "instruction": "sort.1",
        "op": "sort",
        "reason": "sorting is not stitched",
        "kernel": "sort.1",
    }


def test_a_plan_writes_its_page(tmp_path: Path) -> None:
    """(``tests/page`` looks at the page itself.)"""
    path = make_plan().to_html(tmp_path / "plan.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_notebook_shows_figures_kernels_and_what_each_program_moves() -> None:
    shown = make_plan()._repr_html_()
    for part in ("4 launches of XLA become 1", "stitched_exp", "a &lt;note&gt;", "bytes / bound"):
        assert part in shown, part
    drawn = [rect for rect in shown.split("<rect ")[1:] if 'height="34"' in rect]
    widths = [float(rect.split('width="')[1].split('"')[0]) for rect in drawn]
    assert len(widths) == 3 and widths[0] + widths[1] == pytest.approx(2 * widths[2], abs=0.2)


def test_a_notebook_shows_a_kernel() -> None:
    shown = KERNEL._repr_html_()
    for part in ("1,024 x 256, 4.1 kB shared", "thread + block", "one row per block", "a &lt; b &amp;&amp; c"):
        assert part in shown, part


def test_reprs_are_short_and_compile_nothing() -> None:
    """A plan echoed in a shell must not take seconds, nor fill the screen with its HLO."""
    plan = make_plan()
    assert repr(plan) == "<Plan of f on h200: 1 stitched kernels, beam>"
    assert repr(KERNEL) == (
        "<KernelPlan stitched_exp: 1,024 x 256, 4.1 kB shared, 2 operations, reads 128 B, writes 128 B>"
    )
    assert (plan.count_xla.calls, plan.count_stitched.calls) == (0, 0)


@pytest.mark.parametrize(
    ("source", "marked"),
    [
        ("a < b", "a &lt; b"),
        ("// if x", f'<span style="{STYLES["c"]}">// if x</span>'),
        ('"// no <comment>"', "&quot;// no &lt;comment&gt;&quot;"),
        ("int x1 = 1e-5f;", f'<span style="{STYLES["k"]}">int</span> x1 = <span style="{STYLES["n1"]}">1e-5f</span>;'),
        ("#include <a>", f'<span style="{STYLES["d"]}">#include &lt;a&gt;</span>'),
    ],
)
def test_highlighting(source: str, marked: str) -> None:
    assert highlight(source) == marked


VERDICTS = [
    ((4, 512), (1, 256), "4 launches of XLA become 1, and 512 B of traffic become 256 B."),
    ((1, 512), (1, 512), "Nothing is gained: XLA's program has one launch as well, and moves as many bytes (512 B)."),
    ((1, 512), (1, 256), "As many launches as XLA's program has (1), and 512 B of traffic become 256 B."),
    ((3, 512), (1, 510), "3 launches of XLA become 1, and as many bytes move (510 B)."),
    (
        (1, 512),
        (3, 900),
        "One launch of XLA becomes 3, and 512 B of traffic become 900 B; that is more launches and more bytes.",
    ),
]


@pytest.mark.parametrize(("xla", "own", "said"), VERDICTS)
def test_a_plan_says_what_is_gained_over_xlas_final_program(
    xla: tuple[int, int], own: tuple[int, int], said: str
) -> None:
    """A plan that praises itself where XLA does as well misleads."""
    programs = {
        name: Counter(KernelTraffic("k", "fusion", launches, moved, False))
        for name, (launches, moved) in (("count_xla", xla), ("count_stitched", own))
    }
    plan = make_plan(**programs)
    assert plan.verdict() == said and said in str(plan)


def test_a_plan_without_kernels_says_so() -> None:
    assert make_plan(kernels=()).verdict() == "Nothing is stitched: XLA's 4 launches stay as they are."
    assert make_plan(kernels=(), unstitched="it sorts").verdict() == "Nothing is stitched: it sorts."


def test_an_unknown_composition_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown composition.*galaxy"):
        dataclasses.replace(KERNEL, composition=("galaxy",))
