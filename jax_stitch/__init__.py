"""JAX Stitch: ``stitch_jit`` is ``jax.jit`` that re-fuses what XLA fused."""

import importlib as _importlib
import logging as _logging
from typing import TYPE_CHECKING

from jax_stitch.api import stitch, stitch_jit
from jax_stitch.capture.errors import UnstitchableError
from jax_stitch.options.autotune import UnknownAutotuneError
from jax_stitch.options.planner_names import UnknownPlannerError
from jax_stitch.options.verification import WrongKernel
from jax_stitch.programs.fallback import StitchWarning
from jax_stitch.tiers.stitched_function import StitchedFunction
from jax_stitch.util.platform import without_traceback as _without_traceback
from jax_stitch.version import __version__

if TYPE_CHECKING:
    from jax_stitch.hlo import plan_hlo, stitch_hlo
    from jax_stitch.hlo_files.errors import HloFileError
    from jax_stitch.report.compare import compare

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

_LATER = {
    "HloFileError": "jax_stitch.hlo_files.errors",
    "compare": "jax_stitch.report.compare",
    "plan_hlo": "jax_stitch.hlo",
    "stitch_hlo": "jax_stitch.hlo",
}
"""What is imported when it is first asked for: a program that only calls ``stitch_jit`` starts without it."""


if not TYPE_CHECKING:  # To a type checker, no other name is there.

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(_importlib.import_module(_LATER[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})


_logging.getLogger("jax._src.xla_bridge").addFilter(_without_traceback)
