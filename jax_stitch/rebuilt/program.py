"""The program that a stitched function becomes, and the JAX operation that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from jax_stitch.capture.frames import decode, encode
from jax_stitch.frames import hide_frames


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RebuiltProgram:
    """A module whose ``main`` takes the arrays of a capture's ``parameters`` and returns those of its ``results``.

    Calls kernels for the CPU by id: they have to be loaded and registered before the program runs. Kernels for a GPU
    are part of the module.
    """

    name: str
    module: bytes = field(repr=False)
    """StableHLO as MLIR bytecode of this version of jaxlib; no addresses, so the same in every process."""
    kernels: tuple[tuple[str, str], ...]
    """Name and id of each kernel for the CPU."""
    constants: tuple[Any, ...] = ()
    """Arrays that JAX made leading arguments of ``main`` (with ``jax_use_simplified_jaxpr_constants``)."""

    def __call__(self, arrays: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """The results, of these types; to be traced by JAX."""
        return _program_p.bind(*self.constants, *arrays, program=self, results=tuple(results))

    def to_bytes(self) -> bytes:
        """All but ``constants`` as data."""
        return encode({"name": self.name, "kernels": self.kernels}, self.module)

    @classmethod
    def from_bytes(cls, data: bytes) -> RebuiltProgram:
        """The reverse of ``to_bytes``."""
        rest = memoryview(data)

        def read(size: int) -> bytes:
            nonlocal rest
            part, rest = rest[:size], rest[size:]
            return bytes(part)

        header, module = decode(read)
        return cls(header["name"], module, tuple((name, id) for name, id in header["kernels"]))


def _abstract(*_: Any, program: RebuiltProgram, results: tuple[jax.ShapeDtypeStruct, ...]) -> list[Any]:
    del program
    return [jax.core.ShapedArray(result.shape, result.dtype) for result in results]


def _lower(ctx: Any, *arrays: Any, program: RebuiltProgram, results: tuple[jax.ShapeDtypeStruct, ...]) -> list[Any]:
    del results
    around, module = ctx.module_context, ir.Module.parse(program.module)
    (types,) = (list(f.type.results) for f in module.body.operations if f.sym_name.value == "main")
    name = mlir.merge_mlir_modules(around.module, program.name, module, dst_symtab=around.symbol_table)
    return list(func.CallOp(types, ir.FlatSymbolRefAttr.get(name), arrays).results)


_program_p = Primitive("stitched_program")
_program_p.multiple_results = True
_program_p.def_abstract_eval(_abstract)
mlir.register_lowering(_program_p, _lower)
hide_frames(__file__)
