"""Which platform JAX should start on, whether it can, and what it says where it cannot."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

from jax_stitch.util.suggestion import UsageError

_DRIVER = Path("/dev/nvidiactl")


def without_traceback(record: logging.LogRecord) -> bool:
    """Make JAX say in one line, and not by a traceback, that its CUDA plugin finds no driver.

    The plugin is there for plans, which need none. The filter of a logger: it lets every record pass.
    """
    text = record.getMessage()
    if record.exc_info and "plugin configuration error" in text and "xla_cuda" in text and not _DRIVER.exists():
        record.msg, record.args, record.exc_info = _NO_DRIVER, (), None
    return True


_NO_DRIVER = (
    "There is no NVIDIA driver: JAX runs without its CUDA plugin (with JAX_PLATFORMS=cpu it does not look for one)"
)


def settle() -> None:
    """Keep JAX to the CPU where its CUDA plugin is installed, for planning, and no NVIDIA driver is.

    JAX would print a traceback and then do the same. For commands only: a library has no business choosing the user's
    platform. To be called before JAX's first use of a device.
    """
    import jax

    config: Any = jax.config  # whose typing lacks its flags
    plugin = any(importlib.util.find_spec(name) for name in ("jax_cuda12_plugin", "jax_cuda13_plugin"))
    if plugin and not _DRIVER.exists() and config.jax_platforms is None:
        config.update("jax_platforms", "cpu")


def start() -> None:
    """Make JAX find its devices. Raise ``UsageError`` if it finds none, mostly for a word in ``$JAX_PLATFORMS``."""
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        said = str(error).partition("(set JAX_PLATFORMS")[0].strip()
        raise UsageError(f"JAX cannot start: {said}\ncorrect or unset $JAX_PLATFORMS") from error
