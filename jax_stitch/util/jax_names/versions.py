"""Versions of JAX: which work, which are tested, and which are here."""

from __future__ import annotations

import re

from msgspec import Struct

TESTED = ("0.10.2", "0.11.2", "0.12.0.1")
"""The newest version that the tests have run with, of each series. Those before it in its series count as tested."""

WORKS = f"jax 0.10 to {TESTED[-1]}"


class Versions(Struct, frozen=True):
    """The versions of JAX and of jaxlib that are imported here."""

    jax: str
    jaxlib: str

    def __str__(self) -> str:
        return f"jax {self.jax} (jaxlib {self.jaxlib})"

    @property
    def too_old(self) -> bool:
        """Return whether this JAX is older than the oldest one that works."""
        return _numbers(self.jax)[:2] < _numbers(TESTED[0])[:2]

    @property
    def tested(self) -> bool:
        """Return whether the tests of this package have run with these versions, or later ones of a series."""
        return all(any(_is_before(version, known) for known in TESTED) for version in (self.jax, self.jaxlib))


def here() -> Versions:
    """Return the versions that are imported. A jaxlib that does not fit jax raises what JAX says of that."""
    import jax
    import jaxlib

    return Versions(jax.__version__, jaxlib.__version__)


def require_supported(versions: Versions) -> None:
    """Raise ``ImportError`` for a JAX that is too old."""
    if versions.too_old:
        raise ImportError(
            f"JAX Stitch works with {WORKS}, and jax {versions.jax} is installed: "
            f'pip install --upgrade "jax>=0.10,<={TESTED[-1]}"'
        )


def _is_before(version: str, known: str) -> bool:
    """Return whether a version is ``known`` or an earlier release of its series; a build from source is not."""
    released = re.fullmatch(r"[\d.]+", version) is not None
    return released and _numbers(version)[:2] == _numbers(known)[:2] and _numbers(version) <= _numbers(known)


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()
