"""What versions of JAX and XLA themselves do wrong, how to see it in a program, and what is done about it."""

from jax_stitch.known_faults.model import Effect, Fault
from jax_stitch.known_faults.table import FAULTS, applying

__all__ = ["FAULTS", "Effect", "Fault", "applying"]
