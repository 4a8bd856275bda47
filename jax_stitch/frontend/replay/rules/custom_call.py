"""Custom calls (LAPACK, cuSOLVER, Python, what XLA does not know), issued again with all they came with."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
from jax import lax

from hlo_parser import Alias, BackendConfig
from jax_stitch.graph.model import Node, TensorType, TupleType
from jax_stitch.graph.opcodes import calls_python

from ..checks import API_VERSIONS
from ..operation import operation
from . import mlir_text
from .callback import CALLBACK, call_python
from .registry import Called, Value, rule


@rule("custom-call")
def _custom_call(node: Node, operands: Sequence[Value], called: Called) -> Value:
    a = node.attributes
    if calls_python(node):
        return call_python(node, operands, called(CALLBACK))
    if a["custom_call_target"].startswith("lapack_"):
        load_lapack()
    version = API_VERSIONS[str(a.get("api_version", "API_VERSION_ORIGINAL"))]
    kept = bool(a.get("custom_call_has_side_effect", False))
    elements = node.type.elements if isinstance(node.type, TupleType) else (node.tensor,)
    attributes = {
        "call_target_name": mlir_text.string(a["custom_call_target"]),
        "api_version": f"{version} : i32",
        "has_side_effect": mlir_text.boolean(kept),
        "backend_config": _config(a.get("backend_config", ""), version == API_VERSIONS["API_VERSION_TYPED_FFI"]),
        "operand_layouts": _layouts(a["operand_layouts"]),
        "result_layouts": _layouts(a["result_layouts"]),
        "output_operand_aliases": f"[{', '.join(map(_alias, a.get('output_to_operand_aliasing', ())))}]",
    }
    results = [e for e in elements if isinstance(e, TensorType)]
    values = operation("stablehlo.custom_call", operands, results, attributes, kept=kept)
    return tuple(values) if isinstance(node.type, TupleType) else values[0]


def _config(config: BackendConfig | str, is_typed: bool) -> str:
    """Return what a call was configured with: attributes by the typed interface, else a string."""
    text = config if isinstance(config, str) else config.text
    return (text or "{}") if is_typed else mlir_text.string(text)


@functools.cache
def load_lapack() -> None:
    """Make JAX hand LAPACK's routines to XLA, as it does when it first lowers a call to one; else a call crashes."""
    matrix = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(lax.linalg.cholesky).trace(matrix).lower(lowering_platforms=("cpu",))


def _layouts(layouts: Sequence[Sequence[int]]) -> str:
    """Write minor-to-major orders as an array of index tensors."""
    texts = []
    for order in layouts:
        text = mlir_text.listed(order) if order else ""
        texts.append(f"dense<{text}> : tensor<{len(order)}xindex>")
    return f"[{', '.join(texts)}]"


def _alias(alias: Alias) -> str:
    numbers = {
        "output_tuple_indices": mlir_text.listed(alias.output_index),
        "operand_index": str(alias.parameter),
        "operand_tuple_indices": mlir_text.listed(alias.parameter_index),
    }
    return mlir_text.fields("output_operand_alias", numbers)
