"""What ``stitch_jit`` and ``plan`` are given by mistake: said at once, with what was meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax

from jax_stitch.util.suggestion import suggestion
from jax_stitch.util.user_errors import WrongArgument


@functools.cache
def _options_of_jit() -> tuple[str, ...]:
    """Return the options that this version of ``jax.jit`` has."""
    return tuple(inspect.signature(jax.jit).parameters)[1:]


def check_options(given: Iterable[str], own: Iterable[str]) -> None:
    """Raise ``TypeError`` for an option that looks like one of ``stitch_jit``, whose own are these, or of ``jax.jit``.

    What looks like none is left to ``jax.jit``, whose error it is to be.
    """
    known = (*own, *_options_of_jit())
    for name in given:
        if name not in known and (meant := suggestion(name, known)):
            raise WrongArgument(f"stitch_jit() got an unexpected keyword argument {name!r}{meant}")


def check_function(fun: Any) -> None:
    """Raise ``TypeError`` for an option given without its name. What else is no function is left to ``jax.jit``."""
    if isinstance(fun, str):
        raise WrongArgument(f"stitch_jit() takes a function, not {fun!r}; options have names: stitch_jit(mode={fun!r})")


def check_names(fun: Callable[..., Any], given: Iterable[str], options: Iterable[str], of: str) -> None:
    """Raise ``TypeError`` for a named argument of ``of`` that is neither the function's nor one of these options."""
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):  # Built in, or a strange object: the call itself will tell.
        return
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            meant = suggestion(name, (*options, *parameters)) or f"; options are {', '.join(options)}"
            raise WrongArgument(f"{of}() got an unexpected keyword argument {name!r}{meant}")
