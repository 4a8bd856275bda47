"""Keeping our frames out of what users read: JAX leaves out its own, and these stand between them."""

from __future__ import annotations

from jax_stitch.util.jax_names import hide_in_sources, hide_in_tracebacks


def hide_frames(file: str) -> None:
    """Leave a file out of the tracebacks that JAX shows, and out of the source positions of operations."""
    for hide in (hide_in_sources, hide_in_tracebacks):
        if hide is not None:  # Without it both are longer, that is all.
            hide(file)
