"""Library operations: products, convolutions, transforms, factorisations, random bits. XLA keeps choosing how to run
them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.model import Node, TensorType, TupleType

from ..checks import ALGORITHMS
from ..operation import operation
from . import mlir_text
from .registry import Called, Value, rule


def _precision(node: Node, operands: int = 2) -> str:
    precisions = node.attributes.get("operand_precision") or ("default",) * operands
    return f"[{', '.join(f'#stablehlo<precision {precision.upper()}>' for precision in precisions[:operands])}]"


@rule("dot")
def _dot(node: Node, operands: Sequence[Value], _: Called) -> Value:
    a = node.attributes
    numbers = {
        "lhs_batching_dimensions": mlir_text.listed(a.get("lhs_batch_dims", ())),
        "rhs_batching_dimensions": mlir_text.listed(a.get("rhs_batch_dims", ())),
        "lhs_contracting_dimensions": mlir_text.listed(a.get("lhs_contracting_dims", ())),
        "rhs_contracting_dimensions": mlir_text.listed(a.get("rhs_contracting_dims", ())),
    }
    attributes = {
        "dot_dimension_numbers": mlir_text.fields("dot", numbers),
        "precision_config": _precision(node),
    }
    if "algorithm" in a:
        factor, total, products = ALGORITHMS[a["algorithm"]]
        algorithm = {
            "lhs_precision_type": factor,
            "rhs_precision_type": factor,
            "accumulation_type": total,
            "lhs_component_count": 1,
            "rhs_component_count": 1,
            "num_primitive_operations": products,
            "allow_imprecise_accumulation": "false",
        }
        attributes["algorithm"] = mlir_text.fields("dot_algorithm", algorithm)
    return operation("stablehlo.dot_general", operands, [node.tensor], attributes)[0]


@rule("ragged-dot")
def _ragged_dot(node: Node, operands: Sequence[Value], _: Called) -> Value:
    a = node.attributes
    dot_dims = (
        (a.get("lhs_contracting_dims", ()), a.get("rhs_contracting_dims", ())),
        (a.get("lhs_batch_dims", ()), a.get("rhs_batch_dims", ())),
    )
    numbers = lax.RaggedDotDimensionNumbers(dot_dims, a.get("lhs_ragged_dims", ()), a.get("rhs_group_dims", ()))
    dtype = ELEMENT_TYPES[node.tensor.dtype].numpy
    lhs, rhs, sizes = operands
    of_left, of_right = (lax.Precision[p.upper()] for p in (a.get("operand_precision") or ("default",) * 2)[:2])
    return lax.ragged_dot_general(lhs, rhs, sizes, numbers, (of_left, of_right), dtype)


def _alike(operands: Sequence[Value]) -> list[Value]:
    """Return the operands in a type that holds both: XLA convolves different types, StableHLO does not."""
    types = {x.dtype for x in operands}
    small = len(types) > 1 and all(jax.numpy.issubdtype(t, jax.numpy.floating) and t.itemsize < 4 for t in types)
    common = jax.numpy.float32 if small else jax.numpy.promote_types(*(x.dtype for x in operands))
    return [lax.convert_element_type(x, common) for x in operands]


@rule("convolution")
def _convolution(node: Node, operands: Sequence[Value], _: Called) -> Value:
    a = node.attributes
    operands = _alike(operands)
    numbers, window = a["dim_labels"], a["window"].dims if "window" in a else ()

    def labels(rank: int, named: dict[str, int], spatial: Sequence[int]) -> str:
        at = {position: name for name, position in named.items()} | {d: str(i) for i, d in enumerate(spatial)}
        return f"[{', '.join(at[i] for i in range(rank))}]"

    rank = len(numbers.input_spatial) + 2
    lhs = labels(rank, {"b": numbers.input_batch, "f": numbers.input_feature}, numbers.input_spatial)
    kernel_features = {"i": numbers.kernel_input_feature, "o": numbers.kernel_output_feature}
    rhs = labels(rank, kernel_features, numbers.kernel_spatial)
    out = labels(rank, {"b": numbers.output_batch, "f": numbers.output_feature}, numbers.output_spatial)
    attributes = {
        "window_strides": mlir_text.integers(d.stride for d in window),
        "padding": mlir_text.pairs([(d.pad_low, d.pad_high) for d in window]),
        "lhs_dilation": mlir_text.integers(d.base_dilation for d in window),
        "rhs_dilation": mlir_text.integers(d.window_dilation for d in window),
        "window_reversal": mlir_text.booleans(d.reversed for d in window),
        "dimension_numbers": f"#stablehlo.conv<{lhs}x{rhs}->{out}>",
        "feature_group_count": mlir_text.integer(a.get("feature_group_count", 1)),
        "batch_group_count": mlir_text.integer(a.get("batch_group_count", 1)),
        "precision_config": _precision(node),
    }
    return operation("stablehlo.convolution", operands, [node.tensor], attributes)[0]


@rule("fft")
def _fft(node: Node, operands: Sequence[Value], _: Called) -> Value:
    attributes = {
        "fft_type": f"#stablehlo<fft_type {node.attributes['fft_type']}>",
        "fft_length": mlir_text.integers(node.attributes["fft_length"]),
    }
    return operation("stablehlo.fft", operands, [node.tensor], attributes)[0]


@rule("cholesky")
def _cholesky(node: Node, operands: Sequence[Value], _: Called) -> Value:
    attributes = {"lower": mlir_text.boolean(node.attributes.get("lower", False))}
    return operation("stablehlo.cholesky", operands, [node.tensor], attributes)[0]


@rule("triangular-solve")
def _triangular_solve(node: Node, operands: Sequence[Value], _: Called) -> Value:
    a = node.attributes
    attributes = {
        "left_side": mlir_text.boolean(a.get("left_side", False)),
        "lower": mlir_text.boolean(a.get("lower", False)),
        "unit_diagonal": mlir_text.boolean(a.get("unit_diagonal", False)),
        "transpose_a": f"#stablehlo<transpose {a.get('transpose_a', 'NO_TRANSPOSE')}>",
    }
    return operation("stablehlo.triangular_solve", operands, [node.tensor], attributes)[0]


@rule("rng-bit-generator")
def _rng_bit_generator(node: Node, operands: Sequence[Value], _: Called) -> Value:
    algorithm = {"rng_default": "DEFAULT", "rng_philox": "PHILOX", "rng_three_fry": "THREE_FRY"}[
        node.attributes["algorithm"]
    ]
    assert isinstance(node.type, TupleType)
    results = [e for e in node.type.elements if isinstance(e, TensorType)]
    attributes = {"rng_algorithm": f"#stablehlo<rng_algorithm {algorithm}>"}
    return tuple(operation("stablehlo.rng_bit_generator", operands, results, attributes))


@rule("rng")
def _rng(node: Node, operands: Sequence[Value], _: Called) -> Value:
    distribution = node.attributes["distribution"].removeprefix("rng_").upper()
    shape = jax.numpy.asarray(node.tensor.dims, dtype="int64")
    attributes = {"rng_distribution": f"#stablehlo<rng_distribution {distribution}>"}
    return operation("stablehlo.rng", [*operands, shape], [node.tensor], attributes)[0]


@rule("partition-id", "replica-id")
def _device_number(node: Node, _: Sequence[Value], __: Called) -> Value:
    return operation(f"stablehlo.{node.op.replace('-', '_')}", [], [node.tensor])[0]
