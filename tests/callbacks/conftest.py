"""Kernels of these tests are compiled lightly in ``make test``."""

from tests.light import light

__all__ = ["light"]
