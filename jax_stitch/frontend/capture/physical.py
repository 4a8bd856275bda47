"""Between the values that users see and those that HLO sees: PRNG keys are arrays of uint32 there, float0 is pred."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.util.jax_names import convert_element_type_p


def abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the type of an argument: an array, a tracer, a Python scalar, or a ``ShapeDtypeStruct`` already."""
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=bool(getattr(aval, "weak_type", False)))


def is_key(aval: Any) -> bool:
    """Return whether values of that type are typed PRNG keys (``jax.random.key``)."""
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key))


def physical_aval(aval: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Return the type that HLO has for values of a type, in the x64 mode of the moment; never weak."""
    if is_key(aval):
        data = jax.eval_shape(jax.random.key_data, aval)
        return jax.ShapeDtypeStruct(data.shape, data.dtype)
    if aval.dtype == jax.dtypes.float0:
        return jax.ShapeDtypeStruct(aval.shape, np.bool_)
    return jax.ShapeDtypeStruct(aval.shape, jax.dtypes.canonicalize_dtype(aval.dtype))


def to_physical(value: Any, aval: jax.ShapeDtypeStruct) -> Any:
    """Return the array that HLO takes for a value of the type ``aval``."""
    if is_key(aval):
        return jax.random.key_data(value)
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, np.bool_)
    return jnp.asarray(value, jax.dtypes.canonicalize_dtype(aval.dtype))


def from_physical(array: Any, aval: jax.ShapeDtypeStruct) -> Any:
    """Return the value of the type ``aval`` for an array of HLO's; what is weakly typed becomes so again."""
    if is_key(aval):
        return jax.random.wrap_key_data(array, impl=_implementation(aval))
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, jax.dtypes.float0)
    if aval.weak_type:
        return _weaken(array)
    return array


def _implementation(aval: jax.ShapeDtypeStruct) -> Any:
    """Return the name by which ``wrap_key_data`` knows the generator of a key type. Only keys can be asked, so a traced
    one is.
    """
    implementations: list[Any] = []
    jax.eval_shape(lambda key: implementations.append(jax.random.key_impl(key)), aval)
    return implementations[0]


def _weaken(array: Any) -> Any:
    return convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)
