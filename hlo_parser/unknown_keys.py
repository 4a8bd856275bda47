"""What of a module this library has no name for, and has kept as it stood."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import nearest
from .model import Module
from .notations import NOTATIONS
from .opcodes import OPCODES, is_known

METADATA = frozenset(
    (
        *("op_name", "op_type", "source_file", "source_line", "source_end_line", "source_column", "source_end_column"),
        *("stack_frame_id", "profile_type", "deduplicated_name", "scheduling_name", "metadata_payload"),
        *("size_of_generated_code_in_bytes", "size_of_memory_working_set_in_bytes", "preserve_layout"),  # of older XLA
    )
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """An opcode or attribute (``what``) that is not known, and where; empty names for the module's header.

    ``suggestion`` is a known name close to it, or None.
    """

    what: str
    computation: str = ""
    instruction: str = ""
    suggestion: str | None = None

    def __str__(self) -> str:
        where = ", ".join(f"%{name}" for name in (self.instruction, self.computation) if name)
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{where or 'the module'}: unknown {self.what}{hint}"


def unknown(module: Module) -> list[Unknown]:
    """Return everything a newer XLA wrote that this library does not know; it prints again as it was read."""
    unknowns = [_attribute(key, "", "") for key in module.attributes if key not in NOTATIONS]
    for c in module.computations:
        for i in c:
            if not is_known(i.opcode):
                unknowns.append(Unknown(f"opcode {i.opcode!r}", c.name, i.name, nearest(i.opcode, OPCODES)))
            unknowns += [_attribute(key, c.name, i.name) for key in i.attributes if key not in NOTATIONS]
            unknowns += [_metadata(key, c.name, i.name) for key in i.metadata if key not in METADATA]
    return unknowns


def _attribute(key: str, computation: str, instruction: str) -> Unknown:
    return Unknown(f"attribute {key!r}", computation, instruction, nearest(key, NOTATIONS))


def _metadata(key: str, computation: str, instruction: str) -> Unknown:
    return Unknown(f"key {key!r} of the metadata", computation, instruction, nearest(key, METADATA))
