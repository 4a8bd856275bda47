"""The part of JAX's state that belongs to a thread: whether it traces, and the options that ``with`` statements set."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Nothing public tells which options a thread has set, or sets them all.
from jax_stitch.util.jax_names import config_ext, eval_trace, trace_state_strong_ref

_Option: Any = config_ext.Config
_UNSET: Any = config_ext.unset


TRACE: Any = trace_state_strong_ref  # ``jax.extend.core.get_opaque_trace_state`` takes five times as long.
EAGER: Any = eval_trace


def tracing() -> bool:
    """Return whether this thread is inside a function that JAX traces, so that results are no arrays but tracers."""
    return TRACE.value is not EAGER


@dataclass(frozen=True, slots=True)
class JaxContext:
    """The options of JAX that one thread has set for itself: precision, 64-bit types, default device, mesh, ..."""

    options: tuple[tuple[Any, Any], ...] = field(repr=False)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this thread work as the other one would, so that programs it makes are found in JAX's caches there."""
        before = [(option, option.swap_local(value)) for option, value in self.options]
        try:
            yield
        finally:
            for option, value in reversed(before):
                option.set_local(value)


def current_context() -> JaxContext:
    """Return the context of this thread, but for contexts of ``jax.make_user_context``, which nobody lists."""
    values = [(option, option.get_local()) for option in known_options(len(sys.modules))]
    return JaxContext(tuple((option, value) for option, value in values if value is not _UNSET))


@functools.lru_cache(maxsize=1)
def known_options(modules: int) -> tuple[Any, ...]:
    """Return JAX's options, which are objects in its modules, as of when this many modules are imported.

    Takes some milliseconds: call it before the time is dear.
    """
    del modules
    ours = [module for name, module in sys.modules.copy().items() if name.startswith("jax._src")]
    by_id = {id(o): o for module in ours for o in list(vars(module).values()) if isinstance(o, _Option)}
    return tuple(by_id.values())
