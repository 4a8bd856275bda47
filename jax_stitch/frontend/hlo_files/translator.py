"""The child process in which XLA reads and translates what users give: its readers end their process on some of it."""

from __future__ import annotations

from typing import Any

from jax_stitch.frontend.hlo_files.broadcasts import join_broadcasts
from jax_stitch.frontend.hlo_files.protos import module_bytes
from jax_stitch.util.child import serve
from jax_stitch.util.formatting import one_line, shorten
from jax_stitch.util.jax_names import converters, hlo, ir, mlir

_SHOWN = 200
"""Characters of XLA's own words that a message has."""

_BYTECODE = b"ML\xefR"


def answer(header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """Answer a request to translate ``data``: ``wanted`` is "stablehlo" of HLO text, or the "text" of a "proto" or of
    "mlir".

    The reply has ``ok``; if that is False, XLA's reason. Of StableHLO it has the ``types`` of what it takes and
    returns, of texts the ``names`` and ``sizes`` of their modules, one after the other.
    """
    try:
        if header["wanted"] == "stablehlo":
            types, bytecode = _stablehlo(data.decode("utf-8", "surrogateescape"))
            return {"ok": True, "types": types}, bytecode
        texts = [_of_proto(data)] if header["wanted"] == "proto" else _of_mlir(data)
    except Exception as error:  # What XLA and MLIR raise has no common base.
        return {"ok": False, "reason": _first_line(error)}, b""
    encoded = [text.encode("utf-8", "surrogateescape") for _, text in texts]
    return {"ok": True, "names": [name for name, _ in texts], "sizes": list(map(len, encoded))}, b"".join(encoded)


def _stablehlo(text: str) -> tuple[list[str], bytes]:
    proto = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    bytecode = bytes(converters.hlo_to_stablehlo(proto))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(bytecode)  # held by a name: its operations do not keep it
        join_broadcasts(parsed)
        parsed.operation.walk(_drop_tilings)
        main = next(f for f in parsed.body.operations if ir.StringAttr(f.attributes["sym_name"]).value == "main")
        types = [str(t) for t in (*main.type.inputs, *main.type.results)]
        return types, bytes(mlir.module_to_bytecode(parsed))


def _drop_tilings(operation: Any) -> ir.WalkResult:
    """Drop what a call says of the tiles in its layouts: no GPU has any, and XLA's plugins refuse the attribute."""
    for name in ("operand_tilings", "result_tilings"):
        if operation.name == "stablehlo.custom_call" and name in operation.attributes:
            del operation.attributes[name]
    return ir.WalkResult.ADVANCE


def _of_proto(data: bytes) -> tuple[str, str]:
    inside = module_bytes(data)
    if inside is None:
        raise ValueError("no HLO module is in it")
    module = hlo.HloModule.from_serialized_hlo_module_proto(inside)
    return module.name, _text(module)


def _of_mlir(data: bytes) -> list[tuple[str, str]]:
    with mlir.make_ir_context():
        parsed = _parsed(data)  # which owns the operations
        return [(_name(m, n), _of_module(m)) for n, m in enumerate(_modules(parsed))]


def _parsed(data: bytes) -> ir.Module:
    """Parse text, bytecode, or a portable artifact, which is bytecode of any version."""
    if not data.startswith(_BYTECODE) or b"StableHLO_v" not in data[:64]:
        return ir.Module.parse(data)
    artifact: Any = converters.deserialize_portable_artifact(data)
    return ir.Module.parse(artifact) if isinstance(artifact, bytes) else artifact


def _modules(module: ir.Module) -> list[Any]:
    """Return the module's operation, or those of the modules in it where it holds nothing else."""
    inner = [op for op in module.body.operations if op.operation.name == "builtin.module"]
    return inner if inner and len(inner) == len(list(module.body.operations)) else [module.operation]


def _name(module: Any, number: int) -> str:
    attributes = module.operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else f"module_{number}"


def _of_module(operation: Any) -> str:
    names = [op.operation.name for op in operation.regions[0].blocks[0].operations]
    if "func.func" not in names:
        raise ValueError("it has no function")
    attributes = operation.operation.attributes
    count = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value if "mhlo.num_partitions" in attributes else 1
    if "mhlo.num_partitions" in attributes:
        del attributes["mhlo.num_partitions"]
    text = operation.get_asm(enable_debug_info=True)
    computation = converters.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)
    written = _text(computation.get_hlo_module())
    if count > 1:  # Which is no part of a computation.
        header, rest = written.split("\n", 1)
        written = f"{header}, num_partitions={count}\n{rest}"
    return written


def _text(module: Any) -> str:
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(module.to_string(options))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Both XLA and MLIR say first that they failed, then why.
    said = next((line for line in lines if "error:" in line), lines[0] if lines else type(error).__name__)
    return shorten(one_line(said), _SHOWN)


if __name__ == "__main__":
    serve(answer)
