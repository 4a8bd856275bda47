"""How to say each HLO operation in JAX; importing this package fills the table."""

from . import collectives, control, custom_call, elementwise, linear, regions, shape
from .registry import CHECKS, RULES

__all__ = ["CHECKS", "RULES", "collectives", "control", "custom_call", "elementwise", "linear", "regions", "shape"]
