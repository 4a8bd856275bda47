"""Programs that XLA compiles wrongly are seen before they run, and compiled with options that mend them."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jaxlib

from jax_stitch.frontend.capture.hlo_text import full_text
from jax_stitch.frontend.capture.support import equations
from jax_stitch.jit.dispatch import Answer, answer_of, dispatched, forget_types
from jax_stitch.jit.known_faults import Fault, applying
from jax_stitch.jit.thread_state import tracing
from jax_stitch.util.tracebacks import hide_frames

_LISTS = frozenset({"xla_disable_hlo_passes"})
"""Options to which more is added, and which nothing overrides."""


def faults_in(traced: jax.stages.Traced) -> tuple[Fault, ...]:
    """Return the faults of this XLA that strike what it compiles of a traced function, of those that options mend.

    JAX keeps what is compiled for it: the call that follows does not wait for that again.
    """
    known = _mended_by_options(jax.default_backend())
    if known:
        operations = {equation.primitive.name for equation in equations(traced.jaxpr.jaxpr)}
        known = tuple(fault for fault in known if not fault.operations.isdisjoint(operations))
    if not known:
        return ()
    from jax_stitch.jit.known_faults.struck import struck_by

    compiled: Any = traced.lower().compile()
    struck = struck_by(full_text(compiled.runtime_executable()), known)
    return tuple(fault for fault in known if fault.name in struck)


class Variants:
    """A function under ``jax.jit`` with the user's options, and with those that faults of XLA ask for."""

    def __init__(self, fun: Callable[..., Any], jit_options: Mapping[str, Any]) -> None:
        self._fun, self._jit_options = fun, jit_options
        self.usual: Any = jax.jit(fun, **jit_options)
        self._others: dict[tuple[str, ...], Any] = {}

    def without(self, faults: Sequence[Fault]) -> Any:
        """Return the one that these faults do not strike."""
        if not faults:
            return self.usual
        key = tuple(fault.name for fault in faults)
        with _lock:
            if key not in self._others:
                self._others[key] = jax.jit(self._fun, **_mended(self._jit_options, faults))
            return self._others[key]

    def clear(self) -> None:
        """Forget every trace and every compiled program."""
        for function in (self.usual, *self._others.values()):
            function.clear_cache()


def guarded(fun: Any, stitched: Callable[..., Any], inline: Any, jit_options: Mapping[str, Any]) -> Any:
    """Return a function that runs ``stitched`` under ``jax.jit``, with other options where a fault of XLA strikes it.

    ``fun`` is the user's function, and ``inline`` what is called where JAX traces a caller: a part of another program
    has no options of its own. It is the function itself where this jaxlib has no such fault.
    """
    if not any(fault.options for fault in applying(jaxlib.__version__, ("cpu", "gpu"))):
        return inline
    variants, evict = Variants(stitched, jit_options), inline.clear_cache

    def choose(*args: Any, **kwargs: Any) -> Answer:
        if tracing():
            return Answer(inline(*args, **kwargs))
        return answer_of(variants.without(faults_in(variants.usual.trace(*args, **kwargs))), args, kwargs)

    def clear_cache() -> None:
        forget_types(function)
        variants.clear()
        evict()

    function = dispatched(fun, variants.usual, choose)
    function.__name__, function.clear_cache = inline.__name__, clear_cache
    # Its methods are those of its type: as attributes of its own, a derivative of it would be given them as well.
    return function


def _mended(jit_options: Mapping[str, Any], faults: Sequence[Fault]) -> dict[str, Any]:
    """Return the options of ``jax.jit`` with those that the faults ask for. What the user has chosen stays."""
    chosen: dict[str, Any] = dict(jit_options.get("compiler_options") or {})
    for fault in faults:
        for name, value in fault.options.items():
            if name in _LISTS and chosen.get(name):
                chosen[name] = f"{chosen[name]},{value}"
            else:
                chosen.setdefault(name, value)
    return {**jit_options, "compiler_options": chosen}


@functools.cache
def _mended_by_options(platform: str) -> tuple[Fault, ...]:
    return tuple(fault for fault in applying(jaxlib.__version__, (platform,)) if fault.options)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


_lock = threading.Lock()
"""Held for moments only, by whoever asks for a variant."""

os.register_at_fork(after_in_child=_after_fork)
hide_frames(__file__)
