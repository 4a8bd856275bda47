"""JAX Stitch: ``stitch_jit`` is ``jax.jit`` that re-fuses what XLA fused."""

import logging as _logging

from jax_stitch.api import stitch, stitch_jit
from jax_stitch.autotune_choice import UnknownAutotuneError
from jax_stitch.capture.errors import UnstitchableError
from jax_stitch.compare import compare
from jax_stitch.fallback import StitchWarning
from jax_stitch.hlo import plan_hlo, stitch_hlo
from jax_stitch.hlo_files.errors import HloFileError
from jax_stitch.planner_names import UnknownPlannerError
from jax_stitch.platform import without_traceback as _without_traceback
from jax_stitch.stitched_function import StitchedFunction
from jax_stitch.verify import WrongKernel
from jax_stitch.version import __version__

__all__ = [
    "HloFileError",
    "StitchWarning",
    "StitchedFunction",
    "UnknownAutotuneError",
    "UnknownPlannerError",
    "UnstitchableError",
    "WrongKernel",
    "__version__",
    "compare",
    "plan_hlo",
    "stitch",
    "stitch_hlo",
    "stitch_jit",
]

_logging.getLogger("jax._src.xla_bridge").addFilter(_without_traceback)
