"""The library of compiled code that every process uses, kernels aside: from the wheel, or compiled once a machine.

It has the handler that XLA calls for kernels on the CPU, and what has a thread give way to others.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from pathlib import Path

import jaxlib

from jax_stitch.backend.compile.host import kept_library, load_library
from jax_stitch.backend.compile.load import load
from jax_stitch.backend.launch import shipped
from jax_stitch.util.user_errors import UserError

_logger = logging.getLogger(__name__)

_FUNCTIONS = (
    "JaxStitchBind",
    "JaxStitchLaunch",
    "jax_stitch_bound_id",
    "jax_stitch_bound_info",
    "jax_stitch_forget",
    "jax_stitch_register",
    "jax_stitch_set_yielding",
    "jax_stitch_stop_yielding",
    "jax_stitch_thread_memory",
    "jax_stitch_yield",
)
"""What the library has."""

_loaded: list[ctypes.CDLL] = []


def library() -> ctypes.CDLL:
    """Return the library, compiled where it is not at hand. Raises as ``load_library`` does."""
    found = at_hand()
    if found is None:
        found = _compiled()
        _loaded.append(found)
    return found


def at_hand() -> ctypes.CDLL | None:
    """Return the library, where it is loaded, came with the package, or was compiled before."""
    if not _loaded and (found := _shipped() or _kept()) is not None:
        _loaded.append(found)
    return _loaded[0] if _loaded else None


def _shipped() -> ctypes.CDLL | None:
    """Return the handler that came with the package, if it can be loaded here."""
    content = shipped.content()
    if content is None:
        return None
    try:
        found = load(content)
        for name in _FUNCTIONS:
            getattr(found, name)
    except (OSError, AttributeError) as error:  # made for a newer C library, say
        _logger.debug("the handler that came with the package cannot be loaded, and is compiled: %s", error)
        return None
    return found


def _kept() -> ctypes.CDLL | None:
    try:
        text, _, headers = _text()
        return kept_library(text, headers)
    except UserError:  # There is no compiler; whoever needs one is told.
        return None


def _compiled() -> ctypes.CDLL:
    return load_library("FFI handler", *_text())


def _text() -> tuple[str, tuple[Path, ...], str]:
    """Return the text, the folders of its headers, and what stands for the headers."""
    content = hashlib.sha256(b"".join(path.read_bytes() for path in shipped.sources())).hexdigest()
    text = shipped.SOURCE.read_text(encoding="utf-8")
    return text, shipped.include_folders(), f"jaxlib {jaxlib.__version__} {content}"
