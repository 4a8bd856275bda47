"""The passes by which a module becomes a graph."""

from __future__ import annotations

from hlo_parser import Module

from .argmax import first_nan
from .blocked_scans import join_blocks, unpad_scan
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
from .rewriting import rewrite
from .scatters import localise_scatter
from .simplify import order_broadcast, simplify_convert, simplify_movement, simplify_select
from .spaced import space_scatter
from .windows import tile_window

_CLEAN = (order_broadcast, simplify_movement, simplify_convert, simplify_select, fold)

_PASSES = (
    (*_CLEAN, narrow_window, inline_map, restore_topk, restore_triangular_solve),
    (*_CLEAN, restore_select_and_scatter, count_trips, read_before, join_blocks, unpad_scan),
    (*_CLEAN, unroll),
    (*_CLEAN, localise_scatter, space_scatter, place_scatter, tile_window),
    (*_CLEAN, join_reductions),
    (first_nan,),  # Later: what is joined has one combiner.
)
"""Each pass visits every node once with its rules; a later pass sees what an earlier one left."""


def build(module: Module) -> Graph:
    """The entry computation of a module as a graph. ``flatten`` tells its form, each rule what it changes; what XLA
    calls libraries for is written as operations before (``restored``).

    Raises:
        GraphError: the module holds what a graph cannot (dynamic shapes, constants printed without their value).
    """
    graph = flatten(restored(module))
    for rules in _PASSES:
        graph = rewrite(graph, rules)
    return ordered(graph)
