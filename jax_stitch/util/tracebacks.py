"""Keeping our frames out of what users read: JAX leaves out its own, and these stand between them."""

from __future__ import annotations

from jax.extend import source_info_util


def hide_frames(file: str) -> None:
    """Leaves a file out of the tracebacks that JAX shows, and out of the source positions of operations."""
    source_info_util.register_exclusion(file)
    try:
        from jax._src.traceback_util import register_exclusion
    except ImportError:  # JAX has no public name for it; without it tracebacks are longer, that is all.
        return
    register_exclusion(file)
