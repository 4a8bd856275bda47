"""A module as text that XLA reads, written the way XLA writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .attributes import BackendConfig
from .model import Computation, Instruction, Module, StackFrames
from .shapes import without_layout
from .values import Verbatim
from .write_literal import write_literal

Writer = Callable[[Any], str]

_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"})


def quote(text: str) -> str:
    """A string in quotes, escaped as C does; bytes outside ASCII in octal."""
    escaped = text.translate(_ESCAPES)
    if escaped.isascii() and escaped.isprintable():
        return f'"{escaped}"'
    raw = escaped.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in raw) + '"'


def write_ints(values: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def write_int_lists(values: tuple[tuple[int, ...], ...]) -> str:
    return "{" + ",".join(map(write_ints, values)) + "}"


def write_slice_sizes(values: tuple[Any, ...]) -> str:
    return write_int_lists(values) if values and isinstance(values[0], tuple) else write_ints(values)


def write_bool(value: bool) -> str:
    return "true" if value else "false"


def write_bools(values: tuple[bool, ...] | bool) -> str:
    return write_bool(values) if isinstance(values, bool) else "{" + ",".join(map(write_bool, values)) + "}"


def write_float(value: float) -> str:
    return repr(value).removesuffix(".0")


def write_enums(values: tuple[str, ...]) -> str:
    return "{" + ",".join(values) + "}"


def write_name(name: str) -> str:
    return f"%{name}"


def write_names(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(map(write_name, names)) + "}"


def write_slices(ranges: tuple[tuple[int, int, int], ...]) -> str:
    # XLA writes the steps of all dimensions or of none.
    steps = any(r[2] != 1 for r in ranges)
    return "{" + ", ".join(f"[{a}:{b}:{step}]" if steps else f"[{a}:{b}]" for a, b, step in ranges) + "}"


def write_padding(dims: tuple[tuple[int, int, int], ...]) -> str:
    # XLA writes the interior for all dimensions or for none.
    interior = any(d[2] for d in dims)
    return "x".join(f"{low}_{high}_{inner}" if interior else f"{low}_{high}" for low, high, inner in dims)


def write_items(values: tuple[object, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def write_spaced_items(values: tuple[object, ...]) -> str:
    return "{ " + ", ".join(map(str, values)) + " }"


def write_backend_config(config: BackendConfig | str) -> str:
    if isinstance(config, BackendConfig) and not config.quoted:
        return config.text
    return quote(config.text if isinstance(config, BackendConfig) else config)


def write_frontend_attributes(values: Mapping[str, str | Verbatim]) -> str:
    texts = (f"{key}={value if isinstance(value, Verbatim) else quote(value)}" for key, value in values.items())
    return "{" + ",".join(texts) + "}"


def write_metadata(values: Mapping[str, Any]) -> str:
    def one(value: Any) -> str:
        if isinstance(value, str):
            return quote(value)
        return (
            write_ints(value)
            if isinstance(value, tuple)
            else write_bools(value)
            if value is True or value is False
            else str(value)
        )

    return "{" + " ".join(f"{key}={one(value)}" for key, value in values.items()) + "}"


def write_attribute(key: str, value: Any) -> str:
    """``key=value``. Raises TypeError for a key without a notation whose value is not Verbatim."""
    from .notations import NOTATIONS

    if isinstance(value, Verbatim):
        return f"{key}={value.text}"
    notation = NOTATIONS.get(key)
    if notation is None:
        raise TypeError(f"attribute {key!r} is unknown: give its value as Verbatim(text), not {value!r}")
    return f"{key}={notation.write(value)}"


def write_operands(i: Instruction) -> str:
    """What stands between the parentheses behind the opcode."""
    if i.opcode == "parameter":
        return str(i.parameter_number)
    if i.opcode == "constant" and i.literal is not None:
        return write_literal(i.literal)
    names = [f"%{name}" for name in i.operands]
    # XLA numbers every fifth operand of long lists in a comment.
    return ", ".join(f"/*index={n}*/{name}" if n and n % 5 == 0 else name for n, name in enumerate(names))


def write_instruction(i: Instruction) -> str:
    """One line, without indentation."""
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
    """The computation with its signature, instructions indented by two."""
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
    """The whole text."""
    head = ", ".join([f"HloModule {module.name}", *(write_attribute(k, v) for k, v in module.attributes.items())])
    tables = [write_stack_frames(module.stack_frames)] if module.stack_frames else []
    return "\n\n".join([head, *tables, *map(write_computation, module.computations)]) + "\n\n"
