"""Whether a kernel does nothing that it must not, decided without running it."""

from jax_stitch.kernel.verify.aliases import Aliases
from jax_stitch.kernel.verify.checks import verify
from jax_stitch.kernel.verify.finding import Finding

__all__ = ["Aliases", "Finding", "verify"]
