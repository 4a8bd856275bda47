"""Errors that say themselves what to do, and how they reach a user: with the user's own lines, and none of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class UserError(Exception):
    """A word is wrong, or something is not installed: the message says what to do, and needs no traceback."""


class WrongArgument(UserError, TypeError):
    """A function of ours was given something that it does not take."""


def api_boundary(fun: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a function that users call: the traceback of a ``UserError`` ends in the user's line.

    Everything else that is raised keeps all of its traceback: an exception of the user's own function, a defect of
    ours. ``JAX_TRACEBACK_FILTERING=off`` keeps it for these too, as JAX's own frames.
    """

    @functools.wraps(fun)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return fun(*args, **kwargs)
        except UserError as error:
            import jax

            config: Any = jax.config
            if config.jax_traceback_filtering != "off":
                # What led to it is in the message. Raised again as it is, it gets no line for this function.
                error.__cause__, error.__suppress_context__, error.__traceback__ = None, True, None
            raise

    return called
