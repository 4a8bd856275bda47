"""A known fault of XLA as a value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

Version = tuple[int, ...]


class Effect(StrEnum):
    """The kinds of harm that a fault does."""

    WRONG = "wrong results"
    CRASH = "crash or hang"
    SLOW = "slow"


class Fault(Struct, frozen=True):
    """A row of the table."""

    name: str
    """The key by which ``struck.py``, ``conditions.py`` and the tests find it."""
    title: str
    """The symptom, and the programs that show it."""
    effect: Effect
    issues: tuple[str, ...]
    """As in "jax#39103"; empty where it was found here."""
    platform: str
    """JAX's name of a platform: "cpu" or "gpu"."""
    remedy: str
    """The remedy: that of JAX Stitch, or advice to the user."""
    since: Version | None = None
    """The first version of jaxlib that has it; None where also the oldest supported one does."""
    before: Version | None = None
    """The version of jaxlib that mends it; None where none is known to."""
    options: Mapping[str, str] = MappingProxyType({})
    """Options of XLA with which one program is compiled rightly; empty where no option helps."""
    operations: frozenset[str] = frozenset()
    """The operations of JAX without one of which a program has none of what the options mend."""
    flags: str = ""
    """The same for a whole process, as a part of ``$XLA_FLAGS``."""

    def is_of(self, version: Version) -> bool:
        """Return whether this version of jaxlib has it."""
        return (self.since is None or version >= self.since) and (self.before is None or version < self.before)

    @property
    def versions(self) -> str:
        """Return the affected versions for people."""
        first = f"from {_text(self.since)}" if self.since else ""
        last = f"before {_text(self.before)}" if self.before else ""
        return f"jaxlib {first} {last}".strip() if first and last else f"jaxlib {first or last or 'of any version'}"

    @property
    def place(self) -> str:
        """Return the issues for people."""
        return ", ".join(self.issues) or "not reported"


def _text(version: Version) -> str:
    return ".".join(map(str, version))
