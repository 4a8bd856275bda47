"""Calls of Python functions in programs for devices that are not there: JAX lowers them for those that are alone."""

from __future__ import annotations

from typing import Any

from jax_stitch.frontend.capture.support import CALLBACKS
from jax_stitch.util.jax_names import ClosedJaxpr, Jaxpr, JaxprEqn
from jax_stitch.util.python_calls import python_call_p
from jax_stitch.util.python_targets import GPU_TARGET


def with_described_calls(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Return ``jaxpr`` with each call of a Python function as the call into XLA that JAX makes of it for a GPU.

    The program is compiled and looked at, but never runs.
    """
    return ClosedJaxpr(_rewritten(jaxpr.jaxpr), jaxpr.consts)


def _rewritten(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr.replace(eqns=[_equation(e) for e in jaxpr.eqns])


def _equation(equation: JaxprEqn) -> JaxprEqn:
    if equation.primitive.name not in CALLBACKS:
        return equation.replace(params={name: _value(value) for name, value in equation.params.items()})
    (kept,) = equation.effects or (None,)
    params = {
        "function": equation.params["callback"] if "callback" in equation.params else equation.params["fmt"],
        "target": GPU_TARGET,
        "results": tuple(v.aval for v in equation.outvars),
        "layouts": None,
        "kept": kept,
    }
    return equation.replace(primitive=python_call_p, params=params)


def _value(value: Any) -> Any:
    """Return a parameter of an equation, which may be or hold a jaxpr."""
    if isinstance(value, Jaxpr):
        return _rewritten(value)
    if isinstance(value, ClosedJaxpr):
        return with_described_calls(value)
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    return value
