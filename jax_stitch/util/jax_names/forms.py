"""Forms of names: what has to be true of a function, a class or a registry of JAX for us to use it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

from msgspec import Struct

_COMPILED = "nanobind"
"""The module of the types of compiled functions and classes; their signatures are slow to get and say nothing."""


class Form(Protocol):
    """A test that takes microseconds and runs nothing of JAX's."""

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        ...


class Takes(Struct, frozen=True):
    """A function or class that can be called with so many arguments, and with these named ones besides.

    Compiled functions do not say what they take: of those it is known only that they can be called.
    """

    positional: int = 0
    named: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        if not callable(value):
            return "cannot be called"
        if type(value).__module__ != _COMPILED:
            try:
                inspect.signature(value).bind(*range(self.positional), **dict.fromkeys(self.named))
            except ValueError:  # It has no signature.
                pass
            except TypeError as error:
                return f"takes other arguments ({error})"
        return Has(self.attributes).fault(value)


class Has(Struct, frozen=True):
    """An object or class with these attributes; of a dataclass or a class with annotations also its fields."""

    attributes: tuple[str, ...]

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        fields = {*getattr(value, "__dataclass_fields__", ()), *getattr(value, "__annotations__", ())}
        absent = [name for name in self.attributes if name not in fields and not hasattr(value, name)]
        return f"has no {', '.join(absent)}" if absent else ""


class IsA(Struct, frozen=True):
    """An object whose type has this name."""

    type_name: str

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        found = type(value).__name__
        return "" if found == self.type_name else f"is of the type {found}, not {self.type_name}"


class IsClass(Struct, frozen=True):
    """A class that ``isinstance`` and ``except`` can ask about."""

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        return "" if isinstance(value, type) else "is no class"


class IsModule(Struct, frozen=True):
    """A module; the names that we use of it have entries of their own."""

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        return "" if isinstance(value, ModuleType) else "is no module"


class Registry(Struct, frozen=True):
    """A mapping from operations to rules, which JAX calls. How it calls them only a trial can tell: the canary's."""

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        return "" if isinstance(value, Mapping) and hasattr(value, "__setitem__") else "is no mapping"


class Makes(Struct, frozen=True):
    """A function of one function, whose result has these attributes."""

    attributes: tuple[str, ...]

    def fault(self, value: Any) -> str:
        """Return in what ``value`` differs; empty where it does not."""
        return Has(self.attributes).fault(value(_nothing))


def _nothing() -> None:
    return None
