"""Whether a kernel does nothing that it must not, decided without running it."""

from jax_stitch.kernel.verify.finding import Finding
from jax_stitch.kernel.verify.verify import verify

__all__ = ["Finding", "verify"]
