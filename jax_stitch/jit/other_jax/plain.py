"""Functions that run as plain ``jax.jit`` because of the JAX that is here: what they say of it, and when."""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jax_stitch.frontend.capture.errors import UnstitchableError
from jax_stitch.jit.programs.fallback import StitchWarning
from jax_stitch.jit.tiers import settled
from jax_stitch.util.jax_names import here
from jax_stitch.util.user_errors import UserError, api_boundary

_ADVICE = (
    "Install a version of JAX that it is tested with, or a newer JAX Stitch; jax_stitch.jit.other_jax.report() says "
    "more."
)


class UnusableJax(UserError, RuntimeError):
    """Something cannot be had with the JAX that is here. The message names its version, and what is wrong with it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} cannot be had with {here()}: {reason}. {_ADVICE}")


def plain_jit(
    fun: Callable[..., Any],
    reason: str,
    mode: str,
    strict: bool,
    jit_options: Mapping[str, Any],
    ours: Mapping[str, Any],
) -> Any:
    """Return ``fun`` under ``jax.jit``, with the methods of a stitched function; with ``strict`` each call raises.

    ``ours`` are the options of ``stitch_jit``.
    """
    name = getattr(fun, "__name__", type(fun).__name__)
    jitted: Any = jax.jit(refused(fun, reason) if strict else fun, **jit_options)
    jitted.wait, jitted.status = settled(name, mode, f"{here()}: {reason}")
    jitted.__wrapped__, jitted.jit_options, jitted.stitch_options = fun, jit_options, ours
    jitted.retry = jitted.clear_cache
    jitted.plan = absent(f"the plan of {name}", reason)
    return jitted


def refused(fun: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Return a function that raises ``UnstitchableError`` in place of ``fun``, which is strict."""

    @functools.wraps(fun)
    def raising(*_: Any, **__: Any) -> Any:
        name = getattr(fun, "__name__", type(fun).__name__)
        raise UnstitchableError(name, f"{here()} does not go with this JAX Stitch: {reason}. {_ADVICE}")

    return raising


def absent(what: str, reason: str) -> Callable[..., Any]:
    """Return a function that raises ``UnusableJax``."""

    @api_boundary
    def raising(*_: Any, **__: Any) -> Any:
        raise UnusableJax(what, reason)

    return raising


def warn_once(reason: str) -> None:
    """Say, once in a process, that functions run as plain ``jax.jit``."""
    global _warned
    with _lock:
        if _warned:
            return
        _warned = True
    message = f"functions run as plain jax.jit, since {here()} does not go with this JAX Stitch: {reason}. {_ADVICE}"
    warnings.warn(message, StitchWarning, stacklevel=_user_level())


def _user_level() -> int:
    """Return how many frames are between ``warn_once`` and the user's own."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jax_stitch."):
        level, frame = level + 1, frame.f_back
    return level


_lock = threading.Lock()
_warned = False
