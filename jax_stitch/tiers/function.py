"""The function that users call: it hands each call to plain ``jax.jit`` or to the stitched program.

Once all is decided, a call is one Python call more than a call of ``jax.jit``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from jax_stitch.capture.function import function_name
from jax_stitch.jit.primitive import Request
from jax_stitch.jit.thread_state import EAGER, TRACE
from jax_stitch.options.modes import Mode
from jax_stitch.tiers.preparing import Unprepared
from jax_stitch.tiers.programs import Programs
from jax_stitch.util.tracebacks import hide_frames


def tiered(
    traced: Any,
    stitched: Callable[..., Any],
    inline: Any,
    origin: Request,
    mode: Mode,
    jit_options: Mapping[str, Any],
) -> Callable[..., Any]:
    """A function under plain ``jax.jit`` until ``stitched``, which computes the same, is compiled; then what is faster
    in ``Mode.AUTO``, the stitched one in ``Mode.ASYNC``.

    ``traced`` is what ``traced_apart`` has made of it. Where JAX traces a caller, there is no later call that could run
    another program: ``inline``, ``jax.jit`` of ``stitched``, is called there, and is what ``lower``, ``trace`` and
    ``eval_shape`` are of.
    """
    programs = Programs(traced, stitched, inline, origin, mode, jit_options)
    plain, trace, eager, last_trace = programs.plain, TRACE, EAGER, traced.last_trace

    @functools.wraps(traced)
    def call(*args: Any, **kwargs: Any) -> Any:
        # In line, also ``tracing()``, as a call of a small function takes JAX but 5 us.
        if programs.all_plain and trace.value is eager:
            before = last_trace[0]
            try:
                result = plain(*args, **kwargs)
            except BaseException:
                programs.doubt()
                raise
            if last_trace[0] is not before:
                programs.noticed(args, kwargs, result)
            return result
        try:
            return programs.current(*args, **kwargs)
        except Unprepared:
            pass
        return programs.choose(*args, **kwargs)

    function: Any = call
    del function.last_trace
    function.__name__ = inline.__name__
    function.lower, function.trace, function.eval_shape = inline.lower, inline.trace, inline.eval_shape
    function.clear_cache, function.wait, function.status = programs.clear, programs.wait, programs.status
    return call


def traced_apart(fun: Callable[..., Any]) -> Any:
    """``fun`` as another function to JAX: its plain programs must not be taken for those of ``jax.jit(fun)``.

    The one element of its attribute ``last_trace`` is a new object after each trace. (To raise something there would be
    simpler, but JAX keeps no trace of what has once failed. An element of a list is read faster than an attribute.)
    """

    last_trace: list[object] = [None]

    @functools.wraps(fun)
    def apart(*args: Any, **kwargs: Any) -> Any:
        last_trace[0] = object()
        return fun(*args, **kwargs)

    seen: Any = apart
    seen.__name__, seen.last_trace = function_name(fun), last_trace
    return seen


hide_frames(__file__)
