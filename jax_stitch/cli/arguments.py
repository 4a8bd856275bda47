"""Functions and arguments named on a command line."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES


class UsageError(ValueError):
    """The command line names something that is not there or cannot be read."""


def load(target: str) -> Callable[..., Any]:
    """The function named ``package.module:function``; modules in the working directory are found as well."""
    module_name, separator, path = target.partition(":")
    if not (module_name and separator and path):
        raise UsageError(f"{target!r} does not name a function: write package.module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise UsageError(f"no module named {error.name!r} (looked in the working directory and sys.path)") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{target!r}: {getattr(found, '__name__', found)} has no attribute {part!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{target!r} is a {type(found).__name__}, not a function")
    return found


def make(specs: Sequence[str], maker: str | None) -> tuple[Any, ...]:
    """The arguments that ``specs`` describe, or those that the callable named ``maker`` returns as a tuple."""
    if maker is None:
        return tuple(argument(spec) for spec in specs)
    if specs:
        raise UsageError("give either --args or --make-args, not both")
    made = load(maker)()
    if not isinstance(made, tuple):
        raise UsageError(f"{maker!r} returned a {type(made).__name__}; it must return the tuple of all arguments")
    return made


def argument(spec: str) -> Any:
    """``"f32[8192,1024]"`` as a ``jax.ShapeDtypeStruct``, ``"key"`` as a PRNG key, ``"0.5"`` or ``"3"`` as a number."""
    if spec == "key":
        return jax.random.key(0)
    for number in (int, float):
        try:
            return number(spec)
        except ValueError:
            continue
    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\]", spec.strip())
    if match is None:
        raise UsageError(
            f"cannot read the argument {spec!r}: write dtype[sizes] as in f32[8192,1024], a number, or key"
        )
    name, sizes = match.groups()
    if name not in ELEMENT_TYPES:
        raise UsageError(f"unknown element type {name!r} in {spec!r}; known: {', '.join(ELEMENT_TYPES)}")
    dtype = ELEMENT_TYPES[name].numpy
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise UsageError(f"{spec!r} needs 64-bit types: set JAX_ENABLE_X64=1")
    return jax.ShapeDtypeStruct(tuple(int(s) for s in sizes.split(",") if s.strip()), dtype)


def values(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays in place of shapes: normally distributed floats, small non-negative integers, fair booleans.

    The same each time.
    """
    generator = np.random.default_rng(0)

    def value(x: Any) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return x
        if jnp.issubdtype(x.dtype, jnp.inexact):
            return jnp.asarray(generator.standard_normal(x.shape, np.float32), x.dtype)
        return jnp.asarray(generator.integers(0, 2, x.shape), x.dtype)

    return jax.tree.map(value, arguments)
