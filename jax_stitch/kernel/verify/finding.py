"""What the verifier finds."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from jax_stitch.kernel.text import line


class Finding(Struct, frozen=True):
    """A fault: in which part, what, and the line of the kernel's text."""

    part: str
    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.what}" + (f" in `{self.where}`" if self.where else "")


class Fault(Exception):
    """A fault in what is looked at."""


def shown(node: Any) -> str:
    """Return a node's own line, short enough for a message."""
    text = line(node)
    return text if len(text) <= 160 else f"{text[:157]}..."
