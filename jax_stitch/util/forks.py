"""Processes that were forked from one that had used JAX: XLA's threads are gone there, so it cannot compile."""

from __future__ import annotations

import os

_forked_after_use = False


def forked_after_use() -> bool:
    """Return whether a compilation by XLA in this process would wait for threads that only its parent has."""
    return _forked_after_use


def _after_fork() -> None:
    global _forked_after_use
    from jax_stitch.util.jax_names import backends_are_initialized

    if backends_are_initialized is not None:  # Without it, JAX warns of forks itself.
        _forked_after_use = _forked_after_use or backends_are_initialized()


os.register_at_fork(after_in_child=_after_fork)
