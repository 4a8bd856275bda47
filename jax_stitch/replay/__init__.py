"""Replay: a graph and its stitched kernels as a JAX function."""

from .evaluate import replay
from .order import ReplayError
from .reuse import Spent, spent
from .rounding import rounded_otherwise
from .rules.control import loops_bounded
from .stitched import Segment, StitchedGraph
from .unsupported import Unsupported, unsupported

__all__ = [
    "ReplayError",
    "Segment",
    "Spent",
    "StitchedGraph",
    "Unsupported",
    "loops_bounded",
    "replay",
    "rounded_otherwise",
    "spent",
    "unsupported",
]
