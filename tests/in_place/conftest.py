"""Kernels of these tests are compiled lightly in ``make test``."""

from tests.light import light_kernels

__all__ = ["light_kernels"]
