"""A program's HLO as a module, read once for all that is asked of it."""

from __future__ import annotations

import functools

import hlo_parser
from hlo_parser import Module


@functools.lru_cache(maxsize=1)
def module_of(text: str) -> Module:
    """Return the module of the program at hand: what it is worth, its graph, and how its kernels compare are asked in
    turn.
    """
    return hlo_parser.parse(text)
