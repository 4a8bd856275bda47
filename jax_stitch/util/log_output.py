"""Messages on the standard error, for those who ask: by ``$JAX_STITCH_LOG``, or by JAX's ``jax_debug_log_modules``.

JAX's handler for the latter drops every message unless ``jax_logging_level`` is set too, so we have one of our own.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Any

import jax

LOG_VARIABLE = "JAX_STITCH_LOG"
"""What is told on the standard error: see ``LEVELS``."""

_NAME = "jax_stitch"
LEVELS = {"off": None, "info": logging.INFO, "debug": logging.DEBUG}
"""The values of the variable. "off" leaves out the lines about long work as well, which appear when nothing is set."""


class _Handler(logging.Handler):
    """Writes to what is the standard error at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        others = [h for h in logging.getLogger(_NAME).handlers if h is not self]
        if any(record.levelno >= h.level and h.filter(record) for h in others):  # JAX's own writes it after all.
            return
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


_handler = _Handler()
_handler.setFormatter(logging.Formatter("{levelname}:{asctime}:{name}: {message}", style="{"))


def wanted() -> str:
    """Return the value of the variable, or "" where it is not set. Warns, once, of one that is none."""
    text = os.environ.get(LOG_VARIABLE, "").strip().lower()
    if text and text not in LEVELS:
        known = ", ".join(map(repr, LEVELS))
        warnings.warn(f"${LOG_VARIABLE} is {text!r}, which is none of {known}.", stacklevel=2)
        return ""
    return text


def follow() -> None:
    """Do what the variable and JAX's option ask for now; called whenever there may be something to tell."""
    level = LEVELS.get(wanted())
    if level is None and _asked_by_jax():
        level = logging.DEBUG
    logger = logging.getLogger(_NAME)
    if level is None:
        if _handler in logger.handlers:
            logger.removeHandler(_handler)
            logger.setLevel(logging.NOTSET)
        return
    if _handler not in logger.handlers:
        logger.addHandler(_handler)
    logger.setLevel(level)


def _asked_by_jax() -> bool:
    config: Any = jax.config  # whose typing lacks its flags
    names = (config.jax_debug_log_modules or "").split(",")
    return any(name.strip().split(".")[0] == _NAME for name in names)
