"""Which JAX and XLA these are: the versions of JAX, of jaxlib and of the plugins that hold XLA's GPU compiler."""

from __future__ import annotations

import functools
from importlib import metadata
from typing import Any

import jax
import jaxlib

EARLY: Any = jax.Inline.JAX_EARLY if hasattr(jax, "Inline") else True
"""For ``jax.jit(inline=...)``: in line when it is traced, so that what follows sees the caller's operations. jax 0.11
has more kinds, and takes ``True`` for one that comes later."""


def xla_versions() -> tuple[str, ...]:
    """Return all of them, as text."""
    return (jax.__version__, jaxlib.__version__, *_plugins())


@functools.cache
def _plugins() -> tuple[str, ...]:
    plugins = []
    for name in ("jax-cuda12-pjrt", "jax-cuda13-pjrt"):
        try:
            plugins.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(plugins)
