"""Where the stitched function may be traced: elsewhere that would be the start of a long wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_preparing: ContextVar[bool] = ContextVar("jax_stitch_preparing", default=False)


class Unprepared(Exception):
    """There is no stitched program for these arguments."""


def preparing() -> bool:
    """Whether it may be here."""
    return _preparing.get()


@contextmanager
def may_prepare() -> Iterator[None]:
    """While it may."""
    token = _preparing.set(True)
    try:
        yield
    finally:
        _preparing.reset(token)
