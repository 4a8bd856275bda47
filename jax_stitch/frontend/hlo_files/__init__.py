"""Programs from files: HLO text, HLO protos and StableHLO, before or after XLA's passes.

``read`` gives an ``HloProgram``, whose function is traced and captured like any other. What is optimized already keeps
its text on the way (``capture.given``), and is planned as it is.
"""

from jax_stitch.frontend.hlo_files.program import HloProgram
from jax_stitch.frontend.hlo_files.read import read

__all__ = ["HloProgram", "read"]
