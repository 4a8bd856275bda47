"""A function that first runs as under ``jax.jit``, is stitched beside that, and then runs as what is faster.

``function.py`` is the function that users call; ``program.py`` the states of one program of it, for one set of types;
``making.py`` the work in the background; ``trial.py`` the choice between both by their times.
"""

from jax_stitch.tiers.function import tiered, traced_apart
from jax_stitch.tiers.status import ProgramStatus, Status, settled

__all__ = ["ProgramStatus", "Status", "settled", "tiered", "traced_apart"]
