"""Which functions cannot be rebuilt from their HLO: those that do more than compute their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import jax

from jax_stitch.util.jax_names import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params, summarize

_PMAP = frozenset({"xla_pmap", "pmap"})

CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print"})
"""Operations that call a Python function, which the rebuilt program calls as well."""

_MOST_BRACES = 1 << 22
"""Of an array without elements, as XLA writes it: a pair for each of its places but the last dimensions'."""

_LONG_AND_EMPTY = "it has an array without elements that XLA writes as many megabytes of braces"

_SHOWN = 3
"""Of a function's operations with effects, this many are named."""


def unsupported(jaxpr: ClosedJaxpr) -> str | None:
    """Return why a function, traced as ``jaxpr``, has to be left to ``jax.jit``; None if not."""
    innermost = [e for e in equations(jaxpr.jaxpr) if e.effects and not _contains_others(e)]
    of_callbacks = {effect for e in innermost if e.primitive.name in CALLBACKS for effect in e.effects}
    effects = callbacks_effects(jaxpr) - of_callbacks
    if effects:
        kinds = sorted({type(effect).__name__ for effect in effects})
        causes = [*dict.fromkeys(_where(e) for e in innermost if e.primitive.name not in CALLBACKS)]
        more = [f"{len(causes) - _SHOWN} more"] if len(causes) > _SHOWN else []
        return f"it has side effects ({', '.join([*kinds, *causes[:_SHOWN], *more])})"
    if any(aval.is_high for aval in (*jaxpr.in_avals, *jaxpr.out_avals)):
        return "it takes or returns values that are no arrays (hijax types)"
    if any(map(_is_long_and_empty, jaxpr.in_avals)):
        return _LONG_AND_EMPTY
    for equation in equations(jaxpr.jaxpr):
        name = equation.primitive.name
        if any(_is_long_and_empty(v.aval) for v in equation.outvars):
            return f"{_LONG_AND_EMPTY} ({_where(equation)})"
        if "callback" in name and name not in CALLBACKS:
            return f"it calls back to Python ({_where(equation)})"
        if name in ("infeed", "outfeed"):
            return f"it talks to the host ({_where(equation)})"
        if name in _PMAP:
            return f"it is mapped over devices by pmap ({_where(equation)})"
    return None


def _is_long_and_empty(aval: Any) -> bool:
    """Return whether an array has no elements, and other dimensions so long that its text takes minutes to read."""
    shape = [d for d in getattr(aval, "shape", ()) if isinstance(d, int)]
    return 0 in shape and prod(d for d in shape if d) > _MOST_BRACES


def callbacks_effects(jaxpr: ClosedJaxpr) -> frozenset[Any]:
    """Return the effects of a function, which are those of its calls of Python where it is not ``unsupported``."""
    # An axis of a surrounding vmap is gone once JAX has mapped the function; those of a shard_map are known by then.
    return frozenset(effect for effect in jaxpr.effects if not _is_axis(effect))


def calls_python(jaxpr: ClosedJaxpr) -> str | None:
    """Return the first of a function's operations that call a Python function, as the end of a sentence; None if none
    does.
    """
    callbacks = (e for e in equations(jaxpr.jaxpr) if e.primitive.name in CALLBACKS)
    return next((f"it calls back to Python ({_where(e)})" for e in callbacks), None)


def spread(jaxpr: ClosedJaxpr, arguments: Sequence[Any]) -> str | None:
    """Return why a function means nothing on one device by itself; None if it does."""
    if any(map(_is_axis, jaxpr.effects)):
        return "it communicates along an axis of a surrounding vmap or shard_map"
    if is_spread(arguments):
        return "its arguments are spread over several devices"
    for equation in equations(jaxpr.jaxpr):
        if equation.primitive.name == "shard_map" or getattr(equation.params.get("sharding"), "num_devices", 1) > 1:
            return f"it runs on several devices ({_where(equation)})"
    return None


def is_spread(arguments: Sequence[Any]) -> bool:
    """Return whether any of these argument leaves lies, or is typed to lie, on several devices."""
    return any(_device_count(argument) > 1 for argument in arguments)


def _is_axis(effect: Any) -> bool:
    return type(effect).__name__ == "NamedAxisEffect"


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yield the operations of a program, and those of the programs in them."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def _contains_others(equation: JaxprEqn) -> bool:
    return any(True for _ in jaxprs_in_params(equation.params))


def _where(equation: JaxprEqn) -> str:
    """Return an operation's name and the user's line that it is on."""
    return f"{equation.primitive.name} at {summarize(equation.source_info)}"


def _device_count(leaf: Any) -> int:
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        return len(leaf.sharding.device_set)
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    sharding = getattr(aval, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    return int(mesh.size) if mesh is not None and not mesh.empty else getattr(sharding, "num_devices", 1)
