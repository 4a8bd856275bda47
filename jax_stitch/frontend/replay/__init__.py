"""Replay: a graph and its stitched kernels as a JAX function."""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.frontend.replay.calls import Call, Joining, in_calls
    from jax_stitch.frontend.replay.evaluate import replay
    from jax_stitch.frontend.replay.launched import Launch, LaunchedGraph
    from jax_stitch.frontend.replay.missing import Unsupported, unsupported
    from jax_stitch.frontend.replay.order import ReplayError
    from jax_stitch.frontend.replay.pooled import leaves_pooled_work
    from jax_stitch.frontend.replay.reuse import Spent, spent
    from jax_stitch.frontend.replay.rounding import rounded_otherwise
    from jax_stitch.frontend.replay.rules.control import loops_bounded
    from jax_stitch.frontend.replay.stitched import Segment, StitchedGraph

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
            "Call": "jax_stitch.frontend.replay.calls",
            "Joining": "jax_stitch.frontend.replay.calls",
            "Launch": "jax_stitch.frontend.replay.launched",
            "LaunchedGraph": "jax_stitch.frontend.replay.launched",
            "ReplayError": "jax_stitch.frontend.replay.order",
            "Segment": "jax_stitch.frontend.replay.stitched",
            "Spent": "jax_stitch.frontend.replay.reuse",
            "StitchedGraph": "jax_stitch.frontend.replay.stitched",
            "Unsupported": "jax_stitch.frontend.replay.missing",
            "in_calls": "jax_stitch.frontend.replay.calls",
            "leaves_pooled_work": "jax_stitch.frontend.replay.pooled",
            "loops_bounded": "jax_stitch.frontend.replay.rules.control",
            "replay": "jax_stitch.frontend.replay.evaluate",
            "rounded_otherwise": "jax_stitch.frontend.replay.rounding",
            "spent": "jax_stitch.frontend.replay.reuse",
            "unsupported": "jax_stitch.frontend.replay.missing",
        },
    )
