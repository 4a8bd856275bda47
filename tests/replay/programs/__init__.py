"""JAX functions that together use every HLO operation a replay knows, with arguments for them."""

from tests.replay.programs import control, elements, linear, models, moves
from tests.replay.programs.registry import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program", "control", "elements", "linear", "models", "moves"]
