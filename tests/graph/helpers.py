"""Graphs from snippets of HLO, and their values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend import replay
from jax_stitch.graph import Graph, Node

ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""


def module(body: str, computations: str = "") -> hlo_parser.Module:
    """An HLO module whose entry has the instructions of ``body``."""
    return hlo_parser.parse(f"HloModule test\n{computations}\nENTRY %main {{\n{body}\n}}\n")


def both(body: str, computations: str = "") -> tuple[Graph, Graph]:
    """The graph before and after the passes, both verified."""
    parsed = module(body, computations)
    flat, built = graph.flatten(parsed), graph.build(parsed)
    graph.verify(flat)
    graph.verify(built)
    return flat, built


def values(graph: Graph, *arguments: Any, at_once: bool = False) -> list[np.ndarray]:
    run = replay.replay(replay.StitchedGraph(graph))
    return [np.asarray(v) for v in (jax.jit(run) if at_once else run)([np.asarray(a) for a in arguments])]


def assert_equal(flat: Graph, built: Graph, *arguments: Any, at_once: bool = False) -> None:
    """The passes have not changed a bit of any result. ``at_once``, all of it is compiled together: soon done, but
    fractions may be rounded otherwise."""
    for a, b in zip(values(flat, *arguments, at_once=at_once), values(built, *arguments, at_once=at_once), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def ops(graph: Graph) -> list[str]:
    """Opcodes in order, parameters left out."""
    return [n.op for n in graph.nodes if n.op != "parameter"]


def only(graph: Graph, op: str) -> Node:
    (found,) = [n for n in graph.nodes if n.op == op]
    return found
