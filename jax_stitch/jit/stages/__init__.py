"""Any stage of a planned program as text: for ``python -m jax_stitch trace``, and in files for ``JAX_STITCH_DUMP``."""

from __future__ import annotations

from jax_stitch.jit.stages.dump import dump, wanted
from jax_stitch.jit.stages.names import PASSES, STAGES, UnknownStageError, stages_named

__all__ = ["PASSES", "STAGES", "UnknownStageError", "dump", "stages_named", "wanted"]
