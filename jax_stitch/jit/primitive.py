"""The JAX operation that a stitched function is. Planned when lowered, transformed as the function it stands for."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding

from jax_stitch.devices import Device
from jax_stitch.frontend.capture.function import function_name
from jax_stitch.frontend.capture.support import callbacks_effects, unsupported
from jax_stitch.jit.nesting import room
from jax_stitch.jit.programs.fallback import warn
from jax_stitch.util.formatting import shortened
from jax_stitch.util.jax_names import ClosedJaxpr, Primitive, Var, jaxpr_as_fun, pe
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify
from jax_stitch.util.tracebacks import hide_frames

_FRAMES = 17
"""That one function inside another takes when it is traced, more than under ``jax.jit``; about 27 in all, so that a
function which calls itself for ever still comes to an end."""


class _Stitched(Primitive):
    multiple_results = True

    def is_high(self, *avals: Any, **parameters: Any) -> bool:
        """Return False: JAX's high-level operations inside are lowered with the jaxpr, and only arrays go in and
        out.
        """
        del avals, parameters
        return False


stitched_p = _Stitched("stitched")
"""Parameters: ``jaxpr``, a ``ClosedJaxpr`` without traced constants or forwarded inputs; ``origin``. Its only effects
are those of calls of Python functions, and those on the axes of surrounding ``vmap``s and ``shard_map``s."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Request:
    """The user's function that an operation, or a derivative or batched form of it, comes from."""

    name: str
    file: str
    line: int
    scheduled_for: Device | None
    """Lay kernels out for this device instead of the one that runs them."""
    planner: PlannerName
    templates: str = ""
    """Schedules that parts of its kernels have to have."""
    autotune: Autotune = Autotune.OFF
    """What is measured before it is decided."""
    strict: bool = False
    """Raise what would be a warning that it runs unstitched."""
    verify: Verify = Verify.OFF
    """What becomes of kernels that disagree with XLA."""
    sparing: bool = False
    """Stitch only what is worth the time that it takes."""

    @property
    def place(self) -> str:
        """Return where the function is defined."""
        return f"{self.file}:{self.line}"

    def __repr__(self) -> str:
        return self.name


def origin_of(
    fun: Callable[..., Any],
    planner: PlannerName,
    scheduled_for: Device | None = None,
    templates: str = "",
    autotune: Autotune = Autotune.OFF,
    strict: bool = False,
    verify: Verify = Verify.OFF,
    sparing: bool = False,
) -> Request:
    """Return the name and place of a function, a method, a partial application or a callable object."""
    inner: Any = fun
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 0)
    return Request(function_name(fun), file, line, scheduled_for, planner, templates, autotune, strict, verify, sparing)


def bind(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], origin: Request) -> Any:
    """Call ``fun`` as one stitched operation of the arrays in its arguments. All else is part of the function, and what
    is no array among its results stays what it is: so may the leaves of a module be functions.
    """
    if _debugging():
        return fun(*args, **kwargs)
    call, arrays = _over_leaves(fun, args, kwargs, (jax.Array, np.ndarray, np.generic))
    others: list[tuple[list[Any], jax.tree_util.PyTreeDef]] = []

    def computed(*values: Any) -> list[Any]:
        leaves, tree = jax.tree.flatten(call(*values))
        others.append(([_COMPUTED if _is_value(leaf) else leaf for leaf in leaves], tree))
        return [leaf for leaf in leaves if _is_value(leaf)]

    results = iter(bind_function(computed, arrays, origin)[0])
    leaves, tree = others[-1]
    return jax.tree.unflatten(tree, [next(results) if leaf is _COMPUTED else leaf for leaf in leaves])


_COMPUTED = object()


def _is_value(leaf: Any) -> bool:
    """Return whether JAX takes a result for an array."""
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float, complex)) or hasattr(leaf, "__jax_array__")


def bind_jitted(jitted: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], origin: Request) -> Any:
    """Call ``jax.jit`` of a function as one stitched operation of the tracers in its arguments.

    The function is traced by ``jax.jit``: in its cache, and with its errors.
    """
    if _debugging():
        return jitted(*args, **kwargs)
    call, arrays = _over_leaves(jitted, args, kwargs, (jax.core.Tracer,))
    with room(_FRAMES):
        around, shape = jax.make_jaxpr(call, return_shape=True)(*arrays)
    values: dict[Any, Any] = dict(zip(around.jaxpr.invars, arrays, strict=True))
    values.update(zip(around.jaxpr.constvars, around.consts, strict=True))

    def value(variable: Any) -> Any:
        return values[variable] if isinstance(variable, Var) else variable.val

    (equation,) = around.jaxpr.eqns  # That of jax.jit; what the function closes over is among its operands.
    jaxpr = _placed(equation.params["jaxpr"], tuple(equation.params["out_shardings"]))
    results = bind_jaxpr(jaxpr, [value(v) for v in equation.invars], origin)
    values.update(zip(equation.outvars, results, strict=True))
    return jax.tree.unflatten(jax.tree.structure(shape), [value(v) for v in around.jaxpr.outvars])


def _debugging() -> bool:
    """Return whether JAX runs operations one by one, or looks for the one that made a NaN or an infinity."""
    config: Any = jax.config  # whose typing lacks its flags
    return bool(config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs)


def _over_leaves(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], types: tuple[type, ...]
) -> tuple[Callable[..., Any], list[Any]]:
    """Return a call as a function of the leaves of these types, and these. An argument without any stays what it is."""
    arguments = [*args, *kwargs.values()]
    structures = [jax.tree.flatten(argument) for argument in arguments]
    arrays = [leaf for leaves, _ in structures for leaf in leaves if isinstance(leaf, types)]

    def call(*values: Any) -> Any:
        given = iter(values)
        filled = []
        for argument, (leaves, tree) in zip(arguments, structures, strict=True):
            new = [next(given) if isinstance(leaf, types) else leaf for leaf in leaves]
            changed = any(isinstance(leaf, types) for leaf in leaves)
            filled.append(jax.tree.unflatten(tree, new) if changed else argument)
        return fun(*filled[: len(args)], **dict(zip(kwargs, filled[len(args) :], strict=True)))

    return call, arrays


def bind_function(
    fun: Callable[..., Any], arrays: Sequence[Any], origin: Request
) -> tuple[list[Any], jax.tree_util.PyTreeDef]:
    """Call a function of arrays, which may close over tracers, as one stitched operation.

    It is traced once. Returns the leaves of its result and their structure.
    """
    jaxpr, shape = jax.make_jaxpr(fun, return_shape=True)(*arrays)
    lifted = [c for c in jaxpr.consts if isinstance(c, jax.core.Tracer)]
    if lifted:
        arrays = [*lifted, *arrays]
        jaxpr = jax.make_jaxpr(_of_constants(jaxpr, len(lifted)))(*arrays)
    return bind_jaxpr(jaxpr, arrays, origin), jax.tree.structure(shape)


def bind_jaxpr(jaxpr: ClosedJaxpr, arrays: Sequence[Any], origin: Request) -> list[Any]:
    """Evaluate ``jaxpr`` as one stitched operation, or as it is where it has to be left to ``jax.jit``."""
    reason = unsupported(jaxpr)
    if reason is not None:
        warn(origin, reason)
        return list(jaxpr_as_fun(jaxpr)(*arrays))
    # A result that is an argument, or another result, is no work for a kernel.
    known: dict[Any, Any] = dict(zip(jaxpr.jaxpr.invars, arrays, strict=True))
    computed = []
    for result in jaxpr.jaxpr.outvars:
        computed.append(not isinstance(result, Var) or result not in known)
        if computed[-1] and isinstance(result, Var):
            known[result] = None
    if any(computed) or callbacks_effects(jaxpr):
        needed, used = needed_part(jaxpr, computed)
        inputs = [array for array, keep in zip(arrays, used, strict=True) if keep]
        values = stitched_p.bind(*inputs, jaxpr=needed, origin=origin)
    else:
        values = []
    given = iter(values)
    results = []
    for result, new in zip(jaxpr.jaxpr.outvars, computed, strict=True):
        value = next(given) if new else known[result]
        if new and isinstance(result, Var):
            known[result] = value
        results.append(value)
    return results


def needed_part(jaxpr: ClosedJaxpr, results: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """Return ``jaxpr`` for some of its results only, and which of its arguments that needs.

    The same object each time, so that it is planned once.
    """
    known = _needed_parts.setdefault(jaxpr, {})
    key = tuple(results)
    if key not in known:
        needed, consts, inputs = pe.dce_jaxpr_consts(jaxpr.jaxpr, list(key))
        known[key] = ClosedJaxpr(needed, [c for c, keep in zip(jaxpr.consts, consts, strict=True) if keep]), inputs
    return known[key]


_needed_parts: weakref.WeakKeyDictionary[ClosedJaxpr, dict[tuple[bool, ...], tuple[ClosedJaxpr, list[bool]]]]
_needed_parts = weakref.WeakKeyDictionary()


def _placed(jaxpr: ClosedJaxpr, shardings: tuple[Any, ...]) -> ClosedJaxpr:
    """Return ``jaxpr`` with its results split over devices as ``out_shardings`` say, which XLA then knows when it
    splits the rest.

    The same object each time, so that it is planned once. What types say already needs no other words.
    """
    wanted = [s if isinstance(s, NamedSharding) and s.mesh.size > 1 else None for s in shardings]
    if not any(wanted):
        return jaxpr
    if any(AxisType.Explicit in a.sharding.mesh.axis_types for a in (*jaxpr.in_avals, *jaxpr.out_avals)):
        return jaxpr
    known = _placed_forms.setdefault(jaxpr, {})
    if shardings not in known:

        def placed(*arrays: Any) -> list[Any]:
            results = jaxpr_as_fun(jaxpr)(*arrays)
            pairs = zip(results, wanted, strict=True)
            return [r if s is None else jax.lax.with_sharding_constraint(r, s) for r, s in pairs]

        known[shardings] = jax.make_jaxpr(placed)(*argument_types(jaxpr))
    return known[shardings]


_placed_forms: weakref.WeakKeyDictionary[ClosedJaxpr, dict[tuple[Any, ...], ClosedJaxpr]] = weakref.WeakKeyDictionary()


def argument_types(jaxpr: ClosedJaxpr) -> list[jax.ShapeDtypeStruct]:
    """Return the types of its arguments, weak or not, on whatever devices."""
    return _types(jaxpr.in_avals)


def result_types(jaxpr: ClosedJaxpr) -> list[jax.ShapeDtypeStruct]:
    """Return the types of its results, weak or not."""
    return _types(jaxpr.out_avals)


def short_types(avals: Sequence[Any]) -> str:
    """Return types for people: ``f32[8,128], f32[128]``; of many the first ones."""
    return shortened([aval.str_short(short_dtypes=True) for aval in avals])


def _types(avals: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]


def _of_constants(jaxpr: ClosedJaxpr, count: int) -> Callable[..., list[Any]]:
    """Return ``jaxpr`` as a function of its ``count`` traced constants, then of its arguments."""

    def fun(*arrays: Any) -> list[Any]:
        lifted = iter(arrays[:count])
        consts = [next(lifted) if isinstance(c, jax.core.Tracer) else c for c in jaxpr.consts]
        return jaxpr_as_fun(ClosedJaxpr(jaxpr.jaxpr, consts))(*arrays[count:])

    return fun


@stitched_p.def_impl
def _impl(*arrays: Any, jaxpr: ClosedJaxpr, origin: Request) -> list[Any]:
    if _debugging():
        return list(jaxpr_as_fun(jaxpr)(*arrays))

    def run(*xs: Any) -> list[Any]:
        return stitched_p.bind(*xs, jaxpr=jaxpr, origin=origin)

    run.__name__ = run.__qualname__ = origin.name
    return jax.jit(run)(*arrays)


@stitched_p.def_effectful_abstract_eval
def _abstract_eval(*avals: Any, jaxpr: ClosedJaxpr, origin: Request) -> tuple[Sequence[Any], set[Any]]:
    del avals, origin
    return jaxpr.out_avals, set(jaxpr.effects)


hide_frames(__file__)
