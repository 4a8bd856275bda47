"""Texts of graphs before and after each pass: ``texts/NAME.txt`` has a module, and what the pass makes of its graph.

``python -m tests.passes.texts [NAME ...]`` writes them anew, of all passes or of these, from the modules in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.fusion.graph_passes import EXPANDING, PACKING, STREAMING, expanding, splitting
from jax_stitch.fusion.rewrites.chosen import expandable
from jax_stitch.graph.building import BUILDING
from jax_stitch.graph.model import Graph
from jax_stitch.graph.text import graph_lines
from jax_stitch.ir.passes import Pipeline, recording
from jax_stitch.loops.loop_passes import ALL_LOOPS, IMPROVING, NORMALISING, SPLITTING, UNROLLING, Loop

FOLDER = Path(__file__).parent / "texts"
BEFORE, AFTER = "==== before\n", "==== after\n"
CHOSEN, COMPLEX = expanding(frozenset()), splitting(frozenset())

PIPELINES: tuple[Pipeline[Any, Any], ...] = (
    BUILDING,
    STREAMING,
    COMPLEX,
    EXPANDING,
    CHOSEN,
    PACKING,
    ALL_LOOPS,
    SPLITTING,
    UNROLLING,
    NORMALISING,
    IMPROVING,
)
NAMES = tuple(p.name for pipeline in PIPELINES for p in pipeline.passes)


def case(name: str) -> tuple[str, str]:
    """Return the device of a pass's text, and its module."""
    first, module = (FOLDER / f"{name}.txt").read_text().partition(BEFORE)[0].split("\n", 1)
    return first.removeprefix("// on "), module


def around(name: str) -> tuple[str, str]:
    """Return the text of a module's graph before a pass and after it, both verified."""
    device_name, module = case(name)
    device = devices.get(device_name)
    with recording() as steps:
        built = graph.build(hlo_parser.parse(module), {0: 0})
    (pipeline,) = (p for p in PIPELINES if any(one.name == name for one in p.passes))
    if pipeline is BUILDING:
        (step,) = (s for s in steps if s.name == name)
        return text(step.before), text(step.after)
    value: Any = built
    if pipeline in (UNROLLING, NORMALISING, IMPROVING):
        loops = [n for n in built.nodes if n.op == "while"]
        value = Loop(built, len(loops) - 1)
    if pipeline is CHOSEN:
        pipeline = expanding(frozenset(expandable(built, device)))
    apply: Callable[[Any, Any], Any] = pipeline[name].apply
    return text(value), text(apply(value, device))


def text(value: Any) -> str:
    """Return a value of a pass as text; verified."""
    shown: Graph = getattr(value, "graph", value)
    graph.verify(shown)
    return "".join(f"{line}\n" for line in graph_lines(shown, combiners=True))


def written(name: str) -> str:
    """Return what the file of a pass is to have."""
    device, module = case(name)
    before, after = around(name)
    return f"// on {device}\n{module.rstrip()}\n{BEFORE}{before}{AFTER}{after}"


if __name__ == "__main__":
    for one in sys.argv[1:] or NAMES:
        (FOLDER / f"{one}.txt").write_text(written(one))
