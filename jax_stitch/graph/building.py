"""The passes by which a module becomes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hlo_parser import Module
from jax_stitch.ir.passes import Pass, Pipeline

from .builder import Rule
from .flattening import flatten
from .loops import count_trips, read_before, unroll
from .maps import inline_map
from .model import Graph
from .order import ordered
from .rewrites.argmax import first_nan
from .rewrites.blocked_scans import join_blocks, unpad_scan
from .rewrites.donated import settled
from .rewrites.fold import fold
from .rewrites.library import restore_topk, restore_triangular_solve
from .rewrites.library_calls import restored
from .rewrites.narrowed import narrow_window
from .rewrites.placed import place_scatter
from .rewrites.pooling import restore_select_and_scatter
from .rewrites.reductions import join_reductions
from .rewrites.rotation import rotate_by_slices
from .rewrites.scatters import localise_scatter
from .rewrites.simplify import (
    order_broadcast,
    simplify_convert,
    simplify_movement,
    simplify_quotient,
    simplify_select,
    simplify_sign,
)
from .rewrites.spaced import space_scatter
from .rewrites.windows import tile_window
from .rewriting import rewritten
from .verifier import verify

_CLEAN = (
    *(order_broadcast, simplify_movement, simplify_convert),
    *(simplify_select, simplify_sign, simplify_quotient, fold),
)


class _Building:
    """The setting of the passes. ``homes`` are donated parameters by number, with the results in their memory."""

    def __init__(self, homes: Mapping[int, int]) -> None:
        self.homes = homes
        self.idle: set[Graph] = set()
        """Graphs that the last pass left as they were: the rules of all passes have nothing more to do there."""


def _rules(name: str, wants: Callable[[Graph], bool], *rules: Rule) -> Pass[Graph, _Building]:
    """Return a pass that gives each of the rules its chance at every node, once. ``wants`` says whether a graph may
    have something for those rules that no earlier pass had.
    """

    def apply(graph: Graph, building: _Building) -> Graph:
        done = rewritten(graph, rules, {g for g in building.idle if not wants(g)})
        building.idle = {old for old, new in done.items() if old is new}
        return done[graph]

    return Pass(name, apply)


def _has(*ops: str) -> Callable[[Graph], bool]:
    return lambda graph: any(n.op in ops for n in graph.nodes)


def _reduces_twice(graph: Graph) -> bool:
    return sum(n.op == "reduce" for n in graph.nodes) > 1


def _reduces_pairs(graph: Graph) -> bool:
    return any(n.op == "reduce" and len(n.operands) == 4 for n in graph.nodes)


BUILDING = Pipeline(
    "building",
    _rules(
        "restore-operations",
        lambda graph: True,
        *(*_CLEAN, narrow_window, inline_map, restore_topk, restore_triangular_solve, rotate_by_slices),
    ),
    _rules(
        "restore-loops",
        _has("scatter", "while", "reduce-window"),
        *(*_CLEAN, restore_select_and_scatter, count_trips, read_before, join_blocks, unpad_scan),
    ),
    _rules("unroll", _has("while"), *_CLEAN, unroll),
    _rules(
        "localise-scatters",
        _has("scatter", "reduce-window"),
        *(*_CLEAN, localise_scatter, space_scatter, place_scatter, tile_window),
    ),
    _rules("join-reductions", _reduces_twice, *_CLEAN, join_reductions),
    _rules("find-first-nan", _reduces_pairs, first_nan),  # Later: what is joined has one combiner.
    Pass("order", lambda graph, building: ordered(graph)),
    Pass("settle-donated", lambda graph, building: settled(graph, building.homes)),
    verify=verify,
)
"""A later pass sees what an earlier one left, and skips what the earlier one has left as it was, unless it wants it."""


def build(module: Module, homes: Mapping[int, int] = MappingProxyType({})) -> Graph:
    """Return the entry computation of a module as a graph. ``flatten`` tells its form, each rule what it changes; what
    XLA calls libraries for is written as operations before (``restored``).

    ``homes`` are donated parameters by number, each with the result that takes its memory.

    Raises:
        GraphError: the module holds what a graph cannot (dynamic shapes, constants printed without their value).
    """
    return BUILDING.run(flatten(restored(module)), _Building(homes))
