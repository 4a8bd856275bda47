"""A function that first runs as under ``jax.jit``, is stitched beside that, and then runs as what is faster.

``function.py`` is the function that users call. ``programs.py`` chooses what a call runs, by the state of the program
for its types (``program.py``). ``making.py`` is the work in the background, ``trial.py`` the choice by times.
``variants.py`` keeps known faults of XLA from striking.
"""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.jit.tiers.function import tiered, traced_apart
    from jax_stitch.jit.tiers.status import ProgramStatus, Status, inside, settled
    from jax_stitch.jit.tiers.variants import guarded

__all__ = ["ProgramStatus", "Status", "guarded", "inside", "settled", "tiered", "traced_apart"]

if not TYPE_CHECKING:
    # What users name in annotations, and what they are told, is there on a JAX on which nothing can be stitched.
    __getattr__ = later(
        __name__,
        {
            "ProgramStatus": "jax_stitch.jit.tiers.status",
            "Status": "jax_stitch.jit.tiers.status",
            "guarded": "jax_stitch.jit.tiers.variants",
            "inside": "jax_stitch.jit.tiers.status",
            "settled": "jax_stitch.jit.tiers.status",
            "tiered": "jax_stitch.jit.tiers.function",
            "traced_apart": "jax_stitch.jit.tiers.function",
        },
    )
