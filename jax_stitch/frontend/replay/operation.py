"""One JAX primitive for any StableHLO operation that jax.lax does not offer with all its attributes, or with any
region.

jax.lax sorts with its own comparators, scatters with five combiners, and gathers with the index vector last. Optimized
HLO does not keep to that. Here the operation is named and its attributes are given as MLIR writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.model import TensorType
from jax_stitch.util.jax_names import Primitive, mlir
from jax_stitch.util.python_calls import effect_of_calls

_MLIR_NAMES = {"pred": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What the operation applies to scalars (or small arrays) of the given types."""

    parameters: tuple[TensorType, ...]
    function: Callable[[Sequence[Any]], Sequence[Any]]


def operation(
    name: str,
    operands: Sequence[Any],
    results: Sequence[TensorType],
    attributes: Mapping[str, str] | None = None,
    regions: Sequence[Region] = (),
    kept: bool = False,
) -> list[Any]:
    """Apply StableHLO's ``name`` (e.g. ``"stablehlo.sort"``). ``attributes`` are MLIR text, ``results`` the types of
    its results; what is ``kept`` stays, whether or not they are read.

    Has no gradient and no batching rule: stitching happens after both.
    """
    return _operation_p.bind(
        *operands,
        name=name,
        results=tuple(results),
        attributes=tuple((attributes or {}).items()),
        regions=tuple(regions),
        kept=kept,
    )


def wide_indices(indices: Any) -> Any:
    """Return indices of 8 or 16 bits in 32: XLA clamps them by bounds in their own type, which may not hold these, and
    then writes anywhere. A whole program seldom has such, but a part of it may.
    """
    return indices.astype(np.int32) if np.dtype(indices.dtype).itemsize < 4 else indices


def mlir_element_type(dtype: str) -> str:
    """Return MLIR's name of an element type: ``"u32"`` -> ``"ui32"``, ``"f8e4m3fn"`` -> ``"f8E4M3FN"``."""
    if dtype in _MLIR_NAMES:
        return _MLIR_NAMES[dtype]
    if dtype[0] in "su":
        return {"s": "i", "u": "ui"}[dtype[0]] + dtype[1:]
    return dtype if dtype in ("bf16", "f16", "f32", "f64") else "f" + dtype[1:].upper()


def _tensor(type_: TensorType) -> mlir.ir.Type:
    return mlir.ir.Type.parse(f"tensor<{''.join(f'{d}x' for d in type_.dims)}{mlir_element_type(type_.dtype)}>")


def _aval(type_: TensorType) -> jax.core.ShapedArray:
    return jax.core.ShapedArray(type_.dims, ELEMENT_TYPES[type_.dtype].numpy)


def _lower(
    ctx: mlir.LoweringRuleContext,
    *operands: mlir.ir.Value,
    name: str,
    results: tuple[TensorType, ...],
    attributes: tuple[tuple[str, str], ...],
    regions: tuple[Region, ...],
    kept: bool,
) -> Sequence[mlir.ir.Value]:
    op = mlir.ir.Operation.create(
        name,
        results=[_tensor(r) for r in results],
        operands=operands,
        attributes={key: mlir.ir.Attribute.parse(text) for key, text in attributes},
        regions=len(regions),
    )
    for block_owner, region in zip(op.regions, regions, strict=True):
        block = block_owner.blocks.append(*map(_tensor, region.parameters))
        with mlir.ir.InsertionPoint(block):
            inner = ctx.replace(primitive=None, avals_in=[_aval(p) for p in region.parameters], avals_out=None)
            returned = mlir.lower_fun(partial(_trace, region))(inner, *block.arguments)
            mlir.ir.Operation.create("stablehlo.return", operands=mlir.ir_tree_registry.flatten(returned)[0])
    return list(op.results)


def _trace(region: Region, *arguments: Any) -> Sequence[Any]:
    # Lowering happens after the caller has left its own enable_x64 context.
    with jax.enable_x64(True):
        return region.function(arguments)


_operation_p = Primitive("stablehlo_operation")
_operation_p.multiple_results = True
_operation_p.def_effectful_abstract_eval(
    lambda *_, results, kept, **__: ([_aval(r) for r in results], {effect_of_calls(False)} if kept else set())
)
_operation_p.def_impl(lambda *operands, **params: jax.jit(partial(_operation_p.bind, **params))(*operands))
mlir.register_lowering(_operation_p, _lower)
