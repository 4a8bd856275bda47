"""Measuring, between the scheduler and the replay: of a planned function's kernels, those that win.

This stage takes a ``Stitched`` and returns one: it compiles candidates, times them in turn with XLA's own kernels for
the same operations, and keeps what is fastest. It is a stage of its own and no loop around the explorer: the explorer
chooses by prediction alone, for any device, attached or not, so that one plan is the same everywhere; what has been
measured only takes kernels out of a plan or lays them out otherwise, and comes in as values from the library.
"""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.jit.tune.stages import stitch_and_tune
    from jax_stitch.jit.tune.tuner import tune

__all__ = ["stitch_and_tune", "tune"]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "stitch_and_tune": "jax_stitch.jit.tune.stages",
            "tune": "jax_stitch.jit.tune.tuner",
        },
    )
