"""A module as text that XLA reads, written the way XLA writes it."""

from __future__ import annotations

from typing import Any

from .model import Computation, Instruction, Module, StackFrames
from .notations import NOTATIONS
from .shapes import without_layout
from .values import Verbatim
from .write_attribute import quote, write_metadata, write_names
from .write_literal import write_literal


def write_attribute(key: str, value: Any) -> str:
    """Return ``key=value``. Raise TypeError for a key without a notation whose value is not Verbatim."""
    if isinstance(value, Verbatim):
        return f"{key}={value.text}"
    notation = NOTATIONS.get(key)
    if notation is None:
        raise TypeError(f"attribute {key!r} is unknown: give its value as Verbatim(text), not {value!r}")
    return f"{key}={notation.write(value)}"


def write_operands(i: Instruction) -> str:
    """Return what stands between the parentheses behind the opcode."""
    if i.opcode == "parameter":
        return str(i.parameter_number)
    if i.opcode == "constant" and i.literal is not None:
        return write_literal(i.literal)
    names = [f"%{name}" for name in i.operands]
    # XLA numbers every fifth operand of long lists in a comment.
    return ", ".join(f"/*index={n}*/{name}" if n and n % 5 == 0 else name for n, name in enumerate(names))


def write_instruction(i: Instruction) -> str:
    """Return one line, without indentation."""
    parts = [f"{'ROOT ' if i.is_root else ''}%{i.name} = {i.shape} {i.opcode}({write_operands(i)})"]
    last: list[str] = []
    for key, value in i.attributes.items():
        (last if key == "backend_config" else parts).append(write_attribute(key, value))
    if i.control_predecessors:
        parts.append(f"control-predecessors={write_names(i.control_predecessors)}")
    if i.metadata:
        parts.append(f"metadata={write_metadata(i.metadata)}")
    return ", ".join(parts + last)


def write_computation(c: Computation) -> str:
    """Return the computation with its signature, instructions indented by two."""
    parameters = ", ".join(f"{p.name}: {without_layout(p.shape)}" for p in c.parameters)
    head = f"{'ENTRY ' if c.is_entry else ''}%{c.name} ({parameters}) -> {without_layout(c.root.shape)} {{"
    tail = "}" if c.execution_thread == "main" else f"}}, execution_thread={quote(c.execution_thread)}"
    return "\n".join([head, *(f"  {write_instruction(i)}" for i in c.instructions), tail])


def write_stack_frames(tables: StackFrames) -> str:
    def names(title: str, rows: tuple[str, ...]) -> str:
        return "\n".join([title, *(f"{n} {quote(name)}" for n, name in enumerate(rows, 1)), ""])

    locations = ["FileLocations"]
    for n, at in enumerate(tables.file_locations, 1):
        locations.append(
            f"{n} {{file_name_id={at.file_name_id} function_name_id={at.function_name_id} line={at.line} "
            f"end_line={at.end_line} column={at.column} end_column={at.end_column}}}"
        )
    frames = ["StackFrames"]
    for n, frame in enumerate(tables.frames, 1):
        frames.append(f"{n} {{file_location_id={frame.file_location_id} parent_frame_id={frame.parent_frame_id + 1}}}")
    return "\n".join(
        [
            names("FileNames", tables.file_names),
            names("FunctionNames", tables.function_names),
            *locations,
            "",
            *frames,
            "",
        ]
    )


def write_module(module: Module) -> str:
    """Return the whole text."""
    head = ", ".join([f"HloModule {module.name}", *(write_attribute(k, v) for k, v in module.attributes.items())])
    tables = [write_stack_frames(module.stack_frames)] if module.stack_frames else []
    return "\n\n".join([head, *tables, *map(write_computation, module.computations)]) + "\n\n"
