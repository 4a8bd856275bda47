"""Replay: a graph and its stitched kernels as a JAX function."""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.replay.calls import Call, Joining, in_calls
    from jax_stitch.replay.evaluate import replay
    from jax_stitch.replay.launched import Launch, LaunchedGraph
    from jax_stitch.replay.missing import Unsupported, unsupported
    from jax_stitch.replay.order import ReplayError
    from jax_stitch.replay.pooled import leaves_pooled_work
    from jax_stitch.replay.reuse import Spent, spent
    from jax_stitch.replay.rounding import rounded_otherwise
    from jax_stitch.replay.rules.control import loops_bounded
    from jax_stitch.replay.stitched import Segment, StitchedGraph

__all__ = [
    "Call",
    "Joining",
    "Launch",
    "LaunchedGraph",
    "ReplayError",
    "Segment",
    "Spent",
    "StitchedGraph",
    "Unsupported",
    "in_calls",
    "leaves_pooled_work",
    "loops_bounded",
    "replay",
    "rounded_otherwise",
    "spent",
    "unsupported",
]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "Call": "jax_stitch.replay.calls",
            "Joining": "jax_stitch.replay.calls",
            "Launch": "jax_stitch.replay.launched",
            "LaunchedGraph": "jax_stitch.replay.launched",
            "ReplayError": "jax_stitch.replay.order",
            "Segment": "jax_stitch.replay.stitched",
            "Spent": "jax_stitch.replay.reuse",
            "StitchedGraph": "jax_stitch.replay.stitched",
            "Unsupported": "jax_stitch.replay.missing",
            "in_calls": "jax_stitch.replay.calls",
            "leaves_pooled_work": "jax_stitch.replay.pooled",
            "loops_bounded": "jax_stitch.replay.rules.control",
            "replay": "jax_stitch.replay.evaluate",
            "rounded_otherwise": "jax_stitch.replay.rounding",
            "spent": "jax_stitch.replay.reuse",
            "unsupported": "jax_stitch.replay.missing",
        },
    )
