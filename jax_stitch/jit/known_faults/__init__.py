"""Known faults of JAX and XLA by version: their condition in a program, and their remedy."""

from jax_stitch.jit.known_faults.model import Effect, Fault
from jax_stitch.jit.known_faults.table import FAULTS, applying

__all__ = ["FAULTS", "Effect", "Fault", "applying"]
