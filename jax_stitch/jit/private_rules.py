"""What ``jax.checkpoint``, ``checkify`` and ``jet`` make of a stitched operation: what they make of a jitted function.

JAX has no public registry for the first two. Without its private ones a policy of ``jax.checkpoint`` would take the
operation as a whole, and ``checkify`` would find no error in it, in silence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from jax_stitch.jit.primitive import Request, argument_types, bind_function, stitched_p
from jax_stitch.jit.programs.fallback import warn
from jax_stitch.util.jax_names import (
    ClosedJaxpr,
    closed_call_partial_eval_custom_rule,
    error_checks,
    jaxpr_as_fun,
    jet,
    jet_rules,
    pe,
)
from jax_stitch.util.tracebacks import hide_frames


def _same_parameters(*arguments: Any) -> tuple[Any, Any]:
    """Return the parameters of the part that is computed ahead and of the part that is computed again, but for
    ``jaxpr``.
    """
    return arguments[-2:]


def _check(*arguments: Any, jaxpr: ClosedJaxpr, origin: Request) -> Any:
    """Return the function, with each of its operations checked, as ``checkify`` writes it for a jitted one."""
    warn(origin, "checkify looks at each of its operations")
    (call,) = jax.make_jaxpr(jax.jit(jaxpr_as_fun(jaxpr)))(*argument_types(jaxpr)).eqns
    return error_checks[call.primitive](*arguments, **call.params)


def _taylor(
    primals: Sequence[Any], series: Sequence[Sequence[Any]], *, jaxpr: ClosedJaxpr, origin: Request
) -> tuple[list[Any], list[list[Any]]]:
    arrays, tree = jax.tree.flatten((list(primals), [list(terms) for terms in series]))

    def expanded(*values: Any) -> tuple[list[Any], list[list[Any]]]:
        given, terms = jax.tree.unflatten(tree, values)
        results, terms = jet(jaxpr_as_fun(jaxpr), given, terms, factorial_scaled=False)
        return list(results), [list(t) for t in terms]

    values, structure = bind_function(expanded, arrays, origin)
    return jax.tree.unflatten(structure, values)


pe.partial_eval_jaxpr_custom_rules[stitched_p] = functools.partial(
    closed_call_partial_eval_custom_rule, "jaxpr", _same_parameters
)
error_checks[stitched_p] = _check
rules: Any = jet_rules  # typed by its first entry
if rules is not None:  # Where JAX has none, nobody can ask for a series.
    rules[stitched_p] = _taylor
hide_frames(__file__)
