"""Functions and arguments named on a command line."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.inspect.cli.command_errors import raised_in
from jax_stitch.util.suggestion import UsageError, suggestion

_NUMPY_NAMES = {str(element.numpy): name for name, element in ELEMENT_TYPES.items()}
"""``{"float32": "f32", ...}``: NumPy's names of element types, which are taken as well."""
_OTHER_NAMES = {"bool": "pred", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}


def load(target: str) -> Callable[..., Any]:
    """Return the function named ``package.module:function``; modules in the working directory are found as well."""
    module_name, separator, path = target.partition(":")
    if not (module_name and separator and path):
        file = f"; for the file {module_name} it is {Path(module_name).stem}:FUNCTION" if _is_file(module_name) else ""
        module, dot, function = target.rpartition(".")
        meant = f"; did you mean {module}:{function}?" if dot and not file and ":" not in target else file
        raise UsageError(f"{target!r} does not name a function: write package.module:function{meant}")
    if _is_file(module_name):
        meant = f"{'.'.join(Path(module_name).with_suffix('').parts)}:{path}"
        raise UsageError(f"{target!r} names a file: write {meant}, from the folder where the modules are")
    value = _module(module_name)
    for part in path.split("."):
        if not hasattr(value, part):
            meant = suggestion(part, (name for name in dir(value) if not name.startswith("_"))) or _functions(value)
            raise UsageError(f"{target!r}: {getattr(value, '__name__', value)} has no attribute {part!r}{meant}")
        value = getattr(value, part)
    if not callable(value):
        kind, there = type(value).__name__, _functions(sys.modules[module_name])
        raise UsageError(f"{target!r} is no function, but of type {kind}{there}")
    return value


def _functions(module: Any) -> str:
    """Return some of the functions that a module has, for a message."""
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return f"; functions there: {', '.join(names[:8])}" if names else ""


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise raised_in(f"importing {name}", error) from error  # it is there, and something that it imports is not
        meant = suggestion(error.name, _modules_beside(error.name))
        raise UsageError(
            f"no module named {error.name!r}{meant}\nit is looked for in the working directory and on sys.path"
        ) from error
    except (Exception, SystemExit) as error:  # Whatever the user's file does when it is imported.
        raise raised_in(f"importing {name}", error) from error


def _modules_beside(name: str) -> list[str]:
    """Return the modules that there are in place of one that there is not."""
    parent, _, _ = name.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", None) if parent else [p for p in sys.path if p]
    names = [module.name for module in pkgutil.iter_modules(folders)]
    return [f"{parent}.{module}" if parent else module for module in names]


def make(specs: Sequence[str], maker: str | None) -> tuple[Any, ...]:
    """Return the arguments that ``specs`` describe, or those that the callable named ``maker`` returns as a tuple."""
    if maker is None:
        return tuple(argument(spec) for spec in specs)
    if specs:
        raise UsageError("give either --args or --make-args, not both")
    called = load(maker)
    try:
        made = called()
    except (Exception, SystemExit) as error:  # Whatever the user's function does.
        raise raised_in(maker, error) from error
    if not isinstance(made, tuple):
        raise UsageError(f"{maker!r} returned a {type(made).__name__}; it must return the tuple of all arguments")
    return made


def argument(spec: str) -> Any:
    """Return ``"f32[8192,1024]"`` as a ``jax.ShapeDtypeStruct``, ``"key"`` as a PRNG key, ``"0.5"`` or ``"3"`` as a
    number.
    """
    if spec == "key":
        return jax.random.key(0)
    for number in (int, float):
        try:
            return number(spec)
        except ValueError:
            continue
    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\]", spec.strip())
    if match is None:
        raise UsageError(f"cannot read the argument {spec!r}{_meant(spec)}\n{_FORMS}")
    name, sizes = match.groups()
    element = _element(name)
    if element not in ELEMENT_TYPES:
        meant = suggestion(name, (*ELEMENT_TYPES, *_NUMPY_NAMES))
        raise UsageError(f"unknown element type {name!r} in {spec!r}{meant}\nknown: {', '.join(ELEMENT_TYPES)}")
    dtype = ELEMENT_TYPES[element].numpy
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise UsageError(f"{spec!r} needs 64-bit types: set JAX_ENABLE_X64=1")
    return jax.ShapeDtypeStruct(tuple(int(s) for s in sizes.split(",") if s.strip()), dtype)


_FORMS = "write dtype[sizes] as in f32[8192,1024] or float32[8192,1024], a number, or key"


def _element(name: str) -> str:
    """Return HLO's name of an element type, which may be called as in NumPy."""
    return _NUMPY_NAMES.get(name) or _OTHER_NAMES.get(name) or name


def _meant(spec: str) -> str:
    """Return what an argument that cannot be read may have been meant to be."""
    if "]," in spec:
        return "; between arguments there are spaces: " + spec.replace("],", "] ")
    if _element(spec) in ELEMENT_TYPES:
        return f"; did you mean {spec}[], one element?"
    name, *sizes = re.findall(r"\w+", spec) or [""]
    if _element(name) in ELEMENT_TYPES and sizes and all(size.isdigit() for size in sizes):
        return f"; did you mean {name}[{','.join(sizes)}]?"
    return ""


def check_call(function: Callable[..., Any], args: Sequence[Any], name: str) -> None:
    """Raise ``UsageError`` if a function does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Built in: the call itself will tell.
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        given = "one argument is" if len(args) == 1 else f"{len(args) or 'no'} arguments are"
        raise UsageError(f"{name}{_plain(signature)}: {given} given, {error}; give what it takes with --args") from None


def _plain(signature: inspect.Signature) -> str:
    """Return a signature without annotations."""
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def values(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arrays in place of shapes: normally distributed floats, small non-negative integers, fair booleans.

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
