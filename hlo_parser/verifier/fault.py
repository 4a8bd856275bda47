"""One thing that is wrong with a module."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong (``message``) and where; ``instruction`` is empty for a fault of a whole computation, both for one
    of the module."""

    message: str
    computation: str = ""
    instruction: str = ""

    def __str__(self) -> str:
        where = ", ".join(f"%{name}" for name in (self.instruction, self.computation) if name)
        return f"{where}: {self.message}" if where else self.message
