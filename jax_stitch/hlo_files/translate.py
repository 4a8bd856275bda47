"""Between HLO and StableHLO, and out of serialized forms, by what jaxlib has for it."""

from __future__ import annotations

from typing import Any

import jax
import jaxlib

import hlo_parser
from hlo_parser import Module
from jax_stitch.capture.errors import HloFileError
from jax_stitch.hlo_files.broadcasts import join_broadcasts
from jax_stitch.hlo_files.content import WHAT, Content, Kind
from jax_stitch.hlo_files.protos import module_bytes
from jax_stitch.jax_names import converters, hlo, ir, mlir
from jax_stitch.util.formatting import one_line, shorten

_SHOWN = 200
"""Characters of XLA's own words that a message has."""


def hlo_texts(content: Content) -> list[tuple[str, str]]:
    """Name and HLO text of each module in a proto or in StableHLO. Raises HloFileError."""
    if content.kind is Kind.PROTO:
        return [_of_proto(content)]
    return _of_mlir(content)


def stablehlo_of(module: Module, where: str) -> bytes:
    """A module as StableHLO, in bytecode of this version of jaxlib. Its ``main`` takes and returns arrays alone, of
    tuples the elements. Raises HloFileError where XLA has no StableHLO for an operation.
    """
    try:
        proto = hlo.hlo_module_from_text(str(module)).as_serialized_hlo_module_proto()
        bytecode = bytes(converters.hlo_to_stablehlo(proto))
        with mlir.make_ir_context():
            parsed = ir.Module.parse(bytecode)  # held by a name: its operations do not keep it
            join_broadcasts(parsed)
            bytecode = bytes(mlir.module_to_bytecode(parsed))
            main = _main(parsed)
            unknown = [
                str(t) for t in (*main.type.inputs, *main.type.results) if "?" in str(t) or "tensor" not in str(t)
            ]
    except (jax.errors.JaxRuntimeError, ir.MLIRError, RuntimeError) as error:
        strange = next((str(u) for u in hlo_parser.unknown(module)), "")
        raise HloFileError(
            f"{where}: XLA cannot take it as a program: {strange or _first_line(error)}\n"
            "mend it there, or dump it again with this version of XLA, from before its passes (before_optimizations)"
        ) from None
    if unknown:
        raise HloFileError(f"{where}: it takes or returns {unknown[0]}; give a module of arrays of fixed shapes")
    return bytecode


def _main(module: ir.Module) -> Any:
    return next(f for f in module.body.operations if ir.StringAttr(f.attributes["sym_name"]).value == "main")


def _of_proto(content: Content) -> tuple[str, str]:
    data = module_bytes(content.data)
    reason = "no HLO module is in it"
    if data is not None:
        try:
            module = hlo.HloModule.from_serialized_hlo_module_proto(data)
            return module.name, _text(module)
        except (jax.errors.JaxRuntimeError, RuntimeError) as error:
            reason = _first_line(error)
    what = f"give {WHAT}"
    if b"ML\xefR" in content.data:  # MLIR inside something else, such as what jax.export writes.
        what = "if jax.export wrote it, give its program alone: jax.export.deserialize(data).mlir_module_serialized"
    raise HloFileError(f"{content.where} is binary, but no HLO proto: {reason}\n{what}")


def _of_mlir(content: Content) -> list[tuple[str, str]]:
    try:
        with mlir.make_ir_context():
            parsed = _parsed(content.data)  # which owns the operations
            return [(_name(m, n), _of_module(m)) for n, m in enumerate(_modules(parsed))]
    except (jax.errors.JaxRuntimeError, ir.MLIRError, RuntimeError, ValueError) as error:
        raise HloFileError(
            f"{content.where} is not StableHLO that this jaxlib ({jaxlib.__version__}) reads: {_first_line(error)}\n"
            "mend it, or write it again: jax.jit(f).lower(...).as_text(), or jax.export"
        ) from None


def _parsed(data: bytes) -> ir.Module:
    """Text, bytecode, or a portable artifact, which is bytecode of any version."""
    if not data.startswith(b"ML\xefR") or b"StableHLO_v" not in data[:64]:
        return ir.Module.parse(data)
    artifact: Any = converters.deserialize_portable_artifact(data)
    return ir.Module.parse(artifact) if isinstance(artifact, bytes) else artifact


def _modules(module: ir.Module) -> list[Any]:
    """The module's operation, or those of the modules in it where it holds nothing else."""
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
