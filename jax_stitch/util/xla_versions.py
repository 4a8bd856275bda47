"""Which XLA this is: the versions of JAX, of jaxlib and of the plugins that hold XLA's GPU compiler."""

from __future__ import annotations

import functools
from importlib import metadata

import jax
import jaxlib


def xla_versions() -> tuple[str, ...]:
    """All of them, as text."""
    return (jax.__version__, jaxlib.__version__, *_plugins())


@functools.cache
def _plugins() -> tuple[str, ...]:
    found = []
    for name in ("jax-cuda12-pjrt", "jax-cuda13-pjrt"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
