"""A function that first runs as under ``jax.jit``, is stitched beside that, and then runs as what is faster.

``function.py`` is the function that users call. ``programs.py`` chooses what a call runs, by the state of the program
for its types (``program.py``). ``making.py`` is the work in the background, ``trial.py`` the choice by times.
``variants.py`` keeps known faults of XLA from striking.
"""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.tiers.function import tiered, traced_apart
    from jax_stitch.tiers.status import ProgramStatus, Status, inside, settled
    from jax_stitch.tiers.variants import guarded

__all__ = ["ProgramStatus", "Status", "guarded", "inside", "settled", "tiered", "traced_apart"]

if not TYPE_CHECKING:
    # What users name in annotations, and what they are told, is there on a JAX on which nothing can be stitched.
    __getattr__ = later(
        __name__,
        {
            "ProgramStatus": "jax_stitch.tiers.status",
            "Status": "jax_stitch.tiers.status",
            "guarded": "jax_stitch.tiers.variants",
            "inside": "jax_stitch.tiers.status",
            "settled": "jax_stitch.tiers.status",
            "tiered": "jax_stitch.tiers.function",
            "traced_apart": "jax_stitch.tiers.function",
        },
    )
