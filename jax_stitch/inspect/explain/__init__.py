"""Why an instruction is where it is: its kernel, what it lost to, and where XLA's own fusion stopped."""

from jax_stitch.inspect.explain.find import UnknownInstructionError
from jax_stitch.inspect.explain.instruction import explain
from jax_stitch.inspect.explain.model import Alternative, Explanation, Stop

__all__ = ["Alternative", "Explanation", "Stop", "UnknownInstructionError", "explain"]
