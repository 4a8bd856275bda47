"""Looking the names up in the JAX that is here: what is missing, what has another form, and what that leaves."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from jax_stitch.util.jax_names.name import EVERYTHING, Name
from jax_stitch.util.jax_names.table import NAMES
from jax_stitch.util.jax_names.versions import WORKS, here, require_supported


class MissingName(ImportError):
    """A name of JAX's is not there, or not as we know it."""


class Fault(Struct, frozen=True):
    """A name that is missing or has another form."""

    name: str
    """JAX's name for it."""
    reason: str
    lost: str

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


def value_of(name: str) -> Any:
    """Return what JAX has under one of our names; None for a faulty one that is spared.

    Raises ``MissingName`` for any other faulty one, and ``KeyError`` for a name that is not ours.
    """
    entry = _entries()[name]
    fault = fault_of(entry)
    if fault is None:
        return _looked_up(entry)
    if entry.spared:
        return None
    raise MissingName(f"{here()} does not go with this version of JAX Stitch, which works with {WORKS}: {fault}")


def faults(lost: Sequence[str] = (EVERYTHING,)) -> tuple[Fault, ...]:
    """Return the faulty names without which these things are lost."""
    return tuple(fault for fault in _all_faults() if fault.lost in lost)


def obstacle(lost: Sequence[str] = (EVERYTHING,)) -> str:
    """Return which names keep us from these things, with JAX's version; empty where none does.

    Raises ``ImportError`` for a JAX that is too old.
    """
    require_supported(here())
    found = faults(lost)
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def report() -> dict[str, Any]:
    """Return the state as plain data: versions, whether they are tested, and each name that is missing or changed."""
    versions = here()
    return {
        "jax": versions.jax,
        "jaxlib": versions.jaxlib,
        "tested": versions.tested,
        "works_with": WORKS,
        "faulty_names": [{"name": f.name, "reason": f.reason, "lost": f.lost} for f in _all_faults()],
    }


def fault_of(entry: Name) -> Fault | None:
    """Return what is wrong about a name in this JAX."""
    try:
        value = _looked_up(entry)
    except (ImportError, AttributeError):
        return Fault(entry.full_name, "is missing", entry.lost)
    try:
        reason = entry.form.fault(value)
    except Exception as error:  # Of whatever took its place.
        reason = f"has another form ({type(error).__name__}: {error})"
    return Fault(entry.full_name, reason, entry.lost) if reason else None


def _looked_up(entry: Name) -> Any:
    home = module(entry.home)
    return getattr(home, entry.attribute) if entry.attribute else home


def module(home: str) -> Any:
    """Return a module of JAX's. A compiled module's parts are its attributes."""
    try:
        return importlib.import_module(home)
    except ImportError:
        outer, _, last = home.rpartition(".")
        if outer and hasattr(parent := importlib.import_module(outer), last):
            return getattr(parent, last)
        raise


@functools.cache
def _all_faults() -> tuple[Fault, ...]:
    return tuple(fault for entry in NAMES if (fault := fault_of(entry)) is not None)


@functools.cache
def _entries() -> dict[str, Name]:
    return {entry.name: entry for entry in NAMES}
