"""JAX Stitch: ``stitch_jit`` is ``jax.jit`` that re-fuses what XLA fused."""

import logging as _logging
import sys as _sys
from typing import TYPE_CHECKING

from jax_stitch.util.later import later as _later
from jax_stitch.util.platform import without_traceback as _without_traceback
from jax_stitch.version import __version__

if TYPE_CHECKING:
    from jax_stitch.api import stitch, stitch_jit
    from jax_stitch.frontend.capture.errors import HloFileError, UnstitchableError
    from jax_stitch.hlo import plan_hlo, stitch_hlo
    from jax_stitch.inspect.report.compare import compare
    from jax_stitch.jit.programs.fallback import StitchWarning
    from jax_stitch.jit.tiers.stitched_function import StitchedFunction
    from jax_stitch.util.options.autotune import UnknownAutotuneError
    from jax_stitch.util.options.planner_names import UnknownPlannerError
    from jax_stitch.util.options.verification import WrongKernel

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

if not TYPE_CHECKING:  # To a type checker, no other name is there.
    # A process that plans for another imports this package too, and needs neither these nor JAX.
    __getattr__ = _later(
        __name__,
        {
            "HloFileError": "jax_stitch.frontend.capture.errors",
            "StitchWarning": "jax_stitch.jit.programs.fallback",
            "StitchedFunction": "jax_stitch.jit.tiers.stitched_function",
            "UnknownAutotuneError": "jax_stitch.util.options.autotune",
            "UnknownPlannerError": "jax_stitch.util.options.planner_names",
            "UnstitchableError": "jax_stitch.frontend.capture.errors",
            "WrongKernel": "jax_stitch.util.options.verification",
            "compare": "jax_stitch.jit.other_jax",
            "plan_hlo": "jax_stitch.jit.other_jax",
            "stitch": "jax_stitch.jit.other_jax",
            "stitch_hlo": "jax_stitch.jit.other_jax",
            "stitch_jit": "jax_stitch.jit.other_jax",
        },
    )

if "jax" in _sys.modules:  # Else a JAX that is too old is found when one of the names above is asked for.
    from jax_stitch.util import jax_names as _jax_names

    _jax_names.require_supported(_jax_names.here())

_logging.getLogger("jax._src.xla_bridge").addFilter(_without_traceback)
