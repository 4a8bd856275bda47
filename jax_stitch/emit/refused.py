"""A kernel that the verifier refuses: it is not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_stitch.kernel.verify import Finding

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource


class KernelRefused(Exception):
    """An internal error of JAX Stitch, found before it does harm: a kernel that does what it must not."""

    def __init__(self, source: KernelSource, findings: Sequence[Finding]):
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"the check of kernel {source.name} fails: {findings[0]}{more}")
        self.source, self.findings = source, tuple(findings)
