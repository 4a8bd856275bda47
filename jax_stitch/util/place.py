"""Where this package lies."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
"""The folder of ``jax_stitch``."""
