"""The passes by which a module becomes a graph."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo_parser import Module

from .argmax import first_nan
from .blocked_scans import join_blocks, unpad_scan
from .builder import Rule
from .flattening import flatten
from .fold import fold
from .library import restore_topk, restore_triangular_solve
from .library_calls import restored
from .loops import count_trips, read_before, unroll
from .maps import inline_map
from .model import Graph
from .narrowed import narrow_window
from .order import ordered
from .placed import place_scatter
from .pooling import restore_select_and_scatter
from .reductions import join_reductions
from .rewriting import rewritten
from .rotation import rotate_by_slices
from .scatters import localise_scatter
from .simplify import order_broadcast, simplify_convert, simplify_movement, simplify_select
from .spaced import space_scatter
from .windows import tile_window

_CLEAN = (order_broadcast, simplify_movement, simplify_convert, simplify_select, fold)


class _Pass(Struct, frozen=True):
    """Rules that each have their chance at every node, once."""

    rules: tuple[Rule, ...]
    wants: Callable[[Graph], bool]
    """Whether there may be something in a graph for those that no earlier pass had."""


def _has(*ops: str) -> Callable[[Graph], bool]:
    return lambda graph: any(n.op in ops for n in graph.nodes)


def _reduces_twice(graph: Graph) -> bool:
    return sum(n.op == "reduce" for n in graph.nodes) > 1


def _reduces_pairs(graph: Graph) -> bool:
    return any(n.op == "reduce" and len(n.operands) == 4 for n in graph.nodes)


_PASSES = (
    _Pass(
        (*_CLEAN, narrow_window, inline_map, restore_topk, restore_triangular_solve, rotate_by_slices),
        lambda graph: True,
    ),
    _Pass(
        (*_CLEAN, restore_select_and_scatter, count_trips, read_before, join_blocks, unpad_scan),
        _has("scatter", "while", "reduce-window"),
    ),
    _Pass((*_CLEAN, unroll), _has("while")),
    _Pass((*_CLEAN, localise_scatter, space_scatter, place_scatter, tile_window), _has("scatter", "reduce-window")),
    _Pass((*_CLEAN, join_reductions), _reduces_twice),
    _Pass((first_nan,), _reduces_pairs),  # Later: what is joined has one combiner.
)
"""A later pass sees what an earlier one left, and skips what the earlier one has left as it was, unless it wants it."""


def build(module: Module) -> Graph:
    """The entry computation of a module as a graph. ``flatten`` tells its form, each rule what it changes; what XLA
    calls libraries for is written as operations before (``restored``).

    Raises:
        GraphError: the module holds what a graph cannot (dynamic shapes, constants printed without their value).
    """
    graph = flatten(restored(module))
    settled: set[Graph] = set()
    for step in _PASSES:
        done = rewritten(graph, step.rules, {g for g in settled if not step.wants(g)})
        settled = {old for old, new in done.items() if old is new}
        graph = done[graph]
    return ordered(graph)
