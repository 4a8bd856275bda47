"""The names of JAX's that it does not promise to keep, behind one door: nothing else imports them.

``table.py`` says of each what it is, its form, and what is lost without it. ``found.py`` looks them up in the JAX that
is here. ``versions.py`` says which versions are tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax_stitch.util.jax_names.found import Fault, MissingName, faults, obstacle, report, value_of
from jax_stitch.util.jax_names.name import EVERYTHING, HLO_FILES
from jax_stitch.util.jax_names.versions import Versions, here, require_supported

if TYPE_CHECKING:
    from jax._src.checkify import error_checks
    from jax._src.config import config_ext
    from jax._src.core import eval_trace, trace_state_strong_ref
    from jax._src.distributed import global_state as distributed_state
    from jax._src.interpreters.partial_eval import closed_call_partial_eval_custom_rule
    from jax._src.interpreters.pxla import cc_shard_arg
    from jax._src.traceback_util import api_boundary as filtering
    from jax._src.traceback_util import register_exclusion as hide_in_tracebacks
    from jax._src.tree_util import dispatch_registry
    from jax._src.xla_bridge import backends_are_initialized
    from jax.experimental.jet import jet, jet_rules
    from jax.experimental.topologies import get_topology_desc
    from jax.experimental.xla_metadata import set_xla_metadata
    from jax.extend.core import Jaxpr, JaxprEqn, Literal, Primitive, Var, jaxpr_as_fun, jaxprs_in_params
    from jax.extend.core import Jaxpr as ClosedJaxpr
    from jax.extend.core.primitives import convert_element_type_p
    from jax.extend.source_info_util import register_exclusion as hide_in_sources
    from jax.extend.source_info_util import summarize
    from jax.interpreters import ad, batching, mlir
    from jax.interpreters import partial_eval as pe
    from jaxlib import _hlo as hlo
    from jaxlib import xla_client
    from jaxlib._jax import PjitFunction, PjitFunctionCache, pjit
    from jaxlib._jax import mlir as converters
    from jaxlib.lapack import registrations as lapack_functions
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, sdy, stablehlo

__all__ = [
    "EVERYTHING",
    "HLO_FILES",
    "ClosedJaxpr",
    "Fault",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "MissingName",
    "PjitFunction",
    "PjitFunctionCache",
    "Primitive",
    "Var",
    "Versions",
    "ad",
    "backends_are_initialized",
    "batching",
    "cc_shard_arg",
    "closed_call_partial_eval_custom_rule",
    "config_ext",
    "convert_element_type_p",
    "converters",
    "dispatch_registry",
    "distributed_state",
    "error_checks",
    "eval_trace",
    "faults",
    "filtering",
    "func",
    "get_topology_desc",
    "here",
    "hide_in_sources",
    "hide_in_tracebacks",
    "hlo",
    "ir",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "jet",
    "jet_rules",
    "lapack_functions",
    "mlir",
    "obstacle",
    "pe",
    "pjit",
    "report",
    "require_supported",
    "sdy",
    "set_xla_metadata",
    "stablehlo",
    "summarize",
    "trace_state_strong_ref",
    "xla_client",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        try:
            value = globals()[name] = value_of(name)
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        return value
