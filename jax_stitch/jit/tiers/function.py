"""The function that users call: it hands each call to plain ``jax.jit`` or to the stitched program.

Once it is decided which, JAX's own dispatch does that: a call costs what one of ``jax.jit`` costs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from jax_stitch.frontend.capture.function import function_name
from jax_stitch.jit.primitive import Request
from jax_stitch.jit.tiers.programs import Programs
from jax_stitch.util.options.modes import Mode
from jax_stitch.util.tracebacks import hide_frames


def tiered(
    traced: Any,
    stitched: Callable[..., Any],
    inline: Any,
    origin: Request,
    mode: Mode,
    jit_options: Mapping[str, Any],
) -> Any:
    """Return a function under plain ``jax.jit`` until ``stitched``, which computes the same, is compiled; then what is
    faster in ``Mode.AUTO``, the stitched one in ``Mode.ASYNC``.

    ``traced`` is what ``traced_apart`` has made of it. Where JAX traces a caller, there is no later call that could run
    another program: ``inline``, ``jax.jit`` of ``stitched``, is called there, and is what ``lower``, ``trace`` and
    ``eval_shape`` are of.
    """
    programs = Programs(traced, stitched, inline, origin, mode, jit_options)
    function = programs.function
    function.__name__ = inline.__name__
    # What methods of its type are of. As attributes of its own they would be given to a derivative of it too, whose
    # `lower` would lower the function.
    function._fun, function._jit_info = inline._fun, inline._jit_info
    function.clear_cache, function.wait, function.status = programs.clear, programs.wait, programs.status
    return function


def traced_apart(fun: Callable[..., Any]) -> Any:
    """Return ``fun`` as another function to JAX: its plain programs must not be taken for those of ``jax.jit(fun)``."""

    @functools.wraps(fun)
    def apart(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    apart.__name__ = function_name(fun)
    return apart


hide_frames(__file__)
