"""Functions that JAX's own dispatch calls, as it calls those under ``jax.jit``: Python is asked which program runs for
arguments of new types, and from then on a call of that program costs what one of ``jax.jit`` costs.

Nothing public makes such a function: this is what ``jax.jit`` itself does, with another answer to new types.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax_stitch.util.jax_names import PjitFunction, PjitFunctionCache, cc_shard_arg, dispatch_registry, filtering, pjit
from jax_stitch.util.tracebacks import hide_frames

_MOST = 4096
"""Types of arguments that are known at a time, as with ``jax.jit``; those longest unused are forgotten."""


class Answer(NamedTuple):
    """What JAX's dispatch is told of a call with arguments of types that it does not know."""

    results: Any
    program: Any = None
    """What later calls with such arguments are to run without asking; None to be asked each time until
    ``forget_types``."""
    is_profiled: bool = False


def dispatched(fun: Callable[..., Any], jitted: Any, answer: Callable[..., Answer]) -> Any:
    """Return a function with the static arguments of ``jitted``, which is ``fun`` under ``jax.jit``; for arguments of
    new types, and while JAX traces, it runs ``answer(*args, **kwargs)``. Under ``jax.disable_jit`` it is ``fun``."""
    options = jitted._jit_info
    if filtering is not None:  # as jax.jit's own answer is
        answer = filtering(_said_once(answer))
    function: Any = pjit(
        fun.__name__,
        fun,
        answer,
        options.static_argnums,
        options.static_argnames,
        (),  # What would tell it from others in a cache that they share.
        dispatch_registry,
        cc_shard_arg,
        PjitFunctionCache(capacity=_MOST),
    )
    functools.update_wrapper(function, fun)
    function._fun, function._jit_info = jitted._fun, options
    return function


def _said_once(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return ``answer`` with JAX's note that frames are left out taken from what it raises again: it is added anew."""

    @functools.wraps(answer)
    def answered(*args: Any, **kwargs: Any) -> Answer:
        try:
            return answer(*args, **kwargs)
        except Exception as failure:
            if notes := getattr(failure, "__notes__", None):
                notes[:] = [note for note in notes if "JAX_TRACEBACK_FILTERING" not in note]
            raise

    return answered


def answer_of(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
    """Run a function under ``jax.jit``: its results, and the program that it has for such arguments."""
    return Answer(*jitted._cache_miss(*args, **kwargs))


def forget_types(function: Any) -> None:
    """Make a dispatched function ask again, for whatever types."""
    function._clear_cache()


def _reduced(function: Any) -> Any:
    """Return how a function of JAX's dispatch is pickled and copied: a stitched one by its name, as Python's own
    functions are; one of ``jax.jit`` as before.
    """
    if getattr(function, "stitch_options", None) is not None:
        return function.__qualname__
    return function.__reduce_ex__(2)


copyreg.pickle(PjitFunction, _reduced)
hide_frames(__file__)
