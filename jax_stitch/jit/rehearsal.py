"""The first run of a program, before anybody waits for it.

The first call of a compiled function takes JAX some 0.5 ms more than those after it, and on a GPU loads its kernels.
A function of microseconds would be seen to stall: so it is run once with zeros. Functions of large arrays and with
loops are not: that would take long, with other arguments than the user's perhaps for ever, and nobody would notice.
Nor are those that call back to Python, which would notice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.frontend.capture.support import calls_python
from jax_stitch.util.jax_names import ClosedJaxpr, Jaxpr

LARGEST = 1 << 20
"""Bytes of all arguments and results."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


class _NoZero(Exception):
    """There is no telling what to pass instead of an argument."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Makes arguments of the types of some call's; keeps none of that call's arrays."""

    _args: tuple[Callable[[], Any], ...]
    _kwargs: Mapping[str, Callable[[], Any]]

    def arguments(self) -> Call:
        """Return arguments for a call that takes the way through JAX that the other call takes."""
        return tuple(make() for make in self._args), {name: make() for name, make in self._kwargs.items()}


def rehearsal(
    jaxpr: ClosedJaxpr,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    jit_options: Mapping[str, Any],
) -> Rehearsal | None:
    """Return how to run a function, traced to ``jaxpr`` for these arguments, once more; None if that is better left."""
    sizes = (aval.size * aval.dtype.itemsize for aval in (*jaxpr.in_avals, *jaxpr.out_avals))
    if sum(sizes) > LARGEST or _loops(jaxpr.jaxpr) or calls_python(jaxpr):
        return None
    try:
        static, names = _static(fun, len(args), jit_options)
        return Rehearsal(
            tuple(_maker(arg, i in static) for i, arg in enumerate(args)),
            {name: _maker(arg, name in names) for name, arg in kwargs.items()},
        )
    except _NoZero:
        return None


def _loops(jaxpr: Jaxpr) -> bool:
    if any(eqn.primitive.name in ("while", "scan") for eqn in jaxpr.eqns):
        return True
    inner = (p for eqn in jaxpr.eqns for p in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr))
    return any(_loops(p.jaxpr if isinstance(p, ClosedJaxpr) else p) for p in inner if _is_jaxpr(p))


def _is_jaxpr(x: Any) -> bool:
    return isinstance(x, (ClosedJaxpr, Jaxpr))


def _static(fun: Callable[..., Any], count: int, options: Mapping[str, Any]) -> tuple[Collection[int], Collection[str]]:
    """Return the positions, of ``count``, and names of the static arguments."""
    positions, names = options.get("static_argnums"), options.get("static_argnames")
    if positions is None and names is None:
        return (), ()
    positions = {positions} if isinstance(positions, int) else set(positions or ())
    names = {names} if isinstance(names, str) else set(names or ())
    try:
        parameters = [p.name for p in inspect.signature(fun).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        raise _NoZero from None
    by_number = {parameters[i] for i in positions if -len(parameters) <= i < len(parameters)}
    by_name = {i for i, name in enumerate(parameters) if name in names}
    return {i % count if i < 0 else i for i in positions | by_name if -count <= i < count}, names | by_number


def _maker(argument: Any, static: bool) -> Callable[[], Any]:
    if static:
        return lambda: argument
    leaves, tree = jax.tree.flatten(argument)
    makers = [_zero(leaf) for leaf in leaves]
    return lambda: jax.tree.unflatten(tree, [make() for make in makers])


def _zero(leaf: Any) -> Callable[[], Any]:
    """Return a maker of zeros that JAX deals with as with ``leaf``."""
    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf)
    if isinstance(leaf, (np.ndarray, np.generic)):
        shape, dtype, scalar = leaf.shape, leaf.dtype, isinstance(leaf, np.generic)
        return lambda: dtype.type(0) if scalar else np.zeros(shape, dtype)
    if not isinstance(leaf, jax.Array) or not isinstance(leaf.sharding, jax.sharding.SingleDeviceSharding):
        raise _NoZero
    device = leaf.sharding if leaf.committed else None
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data, implementation = jax.eval_shape(jax.random.key_data, leaf), jax.random.key_impl(leaf)
        return lambda: jax.device_put(
            jax.random.wrap_key_data(jnp.zeros(data.shape, data.dtype), impl=implementation), device
        )
    shape, dtype = leaf.shape, leaf.dtype
    if leaf.weak_type or jnp.issubdtype(dtype, jax.dtypes.extended):
        raise _NoZero
    return lambda: jax.device_put(np.zeros(shape, dtype), device)
