"""How many random programs are drawn: all in ``make test-all``, a few of them in ``make test``."""

from __future__ import annotations

from hypothesis import settings


def some(few: int, *, of: int) -> int:
    """With ``--quick``, by which Hypothesis draws the same examples in every run (``conftest.py``), ``few``."""
    return few if settings.default is not None and settings.default.derandomize else of
