"""cuBLAS's and cuDNN's calls, by which XLA:GPU has replaced products and convolutions, made these again.

A call becomes a fusion around the product, with all that the call does besides: XLA's kernel stays one. From the plain
operations XLA makes the same call again, with the tiles and algorithms of the device that it compiles for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hlo_parser
from hlo_parser import ArrayShape, Computation, FrozenDict, Instruction, Module, TupleShape
from hlo_parser.rewrite import fresh_name, replace_computation

from ..draft import Draft
from ..library_targets import HIDING, may_hide_operations
from .convolutions import convolution

_MATMULS = frozenset({"__cublas$gemm", "__cublas$lt$matmul"})
_CONVOLUTIONS = frozenset(
    {
        "__cudnn$convForward",
        "__cudnn$convBiasActivationForward",
        "__cudnn$convBackwardInput",
        "__cudnn$convBackwardFilter",
    }
)


def hides_operations(text: str) -> bool:
    """Return whether a program calls libraries for what XLA could also say in operations, and ``restored`` does not."""
    if not may_hide_operations(text):
        return False
    left = restored(hlo_parser.parse(text))
    return any(_target(i).startswith(HIDING) for c in left.computations for i in c)


def restored(module: Module) -> Module:
    """Return the module without those calls; one that is not understood stays what it is."""
    for c in module.computations:
        calls = [i for i in c if i.opcode == "custom-call" and _target(i) in _MATMULS | _CONVOLUTIONS]
        for call in calls:
            body = _body(module.computation(c.name), call)
            if body is not None:
                module = _replaced(module, module.computation(c.name), call, body)
    return module


def _target(i: Instruction) -> str:
    return str(i.attributes.get("custom_call_target", ""))


def _body(c: Computation, call: Instruction) -> Draft | None:
    """Return what a call computes, as a draft of its results; None if it is not known."""
    operands = [c[o].shape for o in call.operands]
    results = call.shape.elements if isinstance(call.shape, TupleShape) else (call.shape,)
    if not all(isinstance(s, ArrayShape) for s in (*operands, *results)):
        return None
    config = call.attributes.get("backend_config")
    if not isinstance(config, Mapping):
        return None
    draft = Draft([s for s in operands if isinstance(s, ArrayShape)])
    wanted = [s for s in results if isinstance(s, ArrayShape)]
    if _target(call) in _MATMULS:
        return _matmul(draft, config.get("gemm_backend_config", config), wanted)
    return _convolved(draft, call, config.get("cudnn_conv_backend_config", config), wanted)


def _matmul(draft: Draft, config: Mapping[str, Any], results: list[ArrayShape]) -> Draft | None:
    """Return ``epilogue(alpha * lhs * rhs + beta * operand 2 + bias)``."""
    epilogue, *aux = str(config.get("epilogue", "DEFAULT")).split("_AUX")
    has_bias, activation = epilogue.startswith("BIAS"), epilogue.removeprefix("BIAS").removeprefix("_")
    alpha, beta = float(config.get("alpha_real", 1)), float(config.get("beta", 0))
    count = 2 + bool(beta) + has_bias
    if len(draft.operands) != count or config.get("alpha_imag", 0) or activation not in ("", "DEFAULT", *_ACTIVATIONS):
        return None
    numbers, short = config["dot_dimension_numbers"], {"contracting": "contracting_dims", "batch": "batch_dims"}
    dims = {
        f"{side}_{name}": tuple(map(int, numbers.get(f"{side}_{key}_dimensions", ())))
        for side in ("lhs", "rhs")
        for key, name in short.items()
    }
    attributes = {k: v for k, v in dims.items() if v} | _precision(config.get("precision_config", {}))
    out = replace(results[0], layout=None)
    value = draft.scaled(draft.add("dot", out, [draft.operands[0], draft.operands[1]], attributes), alpha)
    if beta:
        value = draft.add("add", out, [value, draft.scaled(draft.converted(draft.operands[2], out), beta)])
    if has_bias:
        bias = draft.operands[-1]
        value = draft.add("add", out, [value, draft.broadcast(draft.converted(bias, out), out, (out.rank - 1,))])
    before = value
    if activation in _ACTIVATIONS:
        value = _ACTIVATIONS[activation](draft, value)
    return draft.returning([value, before] if aux else [value])


def _precision(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a product that is rounded as a call's configuration says: without them XLA may take
    fewer bits."""
    wanted = tuple(str(p).lower() for p in config.get("operand_precision", ()))
    algorithm = str(config.get("algorithm", "ALG_UNSET")).removeprefix("ALG_").lower()
    attributes: dict[str, Any] = {"operand_precision": wanted} if set(wanted) - {"default"} else {}
    return attributes if algorithm == "unset" else {**attributes, "algorithm": algorithm}


def _convolved(draft: Draft, call: Instruction, config: Mapping[str, Any], results: list[ArrayShape]) -> Draft | None:
    """Return ``activation(scale * convolution + side_input_scale * operand 3 + bias)``."""
    out = replace(results[0], layout=None)
    scale, side = float(config.get("conv_result_scale", 1)), float(config.get("side_input_scale", 0))
    activation = str(config.get("activation_mode", "kNone"))
    has_bias = _target(call) == "__cudnn$convBiasActivationForward"
    if len(draft.operands) != 2 + has_bias + (has_bias and bool(side)) or activation not in (
        "kNone",
        "kRelu",
        "kRelu6",
    ):
        return None
    value = convolution(draft, _target(call), call.attributes, out)
    if value is None:
        return None
    value = draft.scaled(value, scale)
    if has_bias and side:
        value = draft.add("add", out, [value, draft.scaled(draft.operands[3], side)])
    if has_bias:
        feature = (call.attributes["dim_labels"].output_feature,)
        bias = draft.converted(draft.operands[2], out)
        value = draft.add("add", out, [value, draft.broadcast(bias, out, feature)])
    if activation != "kNone":
        value = draft.add("maximum", out, [value, draft.number(0.0, out)])
    if activation == "kRelu6":
        value = draft.add("minimum", out, [value, draft.number(6.0, out)])
    return draft.returning([value])


def _relu(draft: Draft, x: Instruction) -> Instruction:
    return draft.add("maximum", x.shape, [x, draft.number(0.0, x.shape)])


def _silu(draft: Draft, x: Instruction) -> Instruction:
    return draft.add("multiply", x.shape, [x, draft.add("logistic", x.shape, [x])])


def _gelu(draft: Draft, x: Instruction) -> Instruction:
    """Return GELU by the tangent, as cuBLAS computes it."""

    def times(a: Instruction, b: Instruction) -> Instruction:
        return draft.add("multiply", x.shape, [a, b])

    cubed = times(times(x, x), x)
    inner = draft.scaled(draft.add("add", x.shape, [x, draft.scaled(cubed, 0.044715)]), 0.7978845608028654)
    bent = draft.add("add", x.shape, [draft.add("tanh", x.shape, [inner]), draft.number(1.0, x.shape)])
    return times(draft.scaled(x, 0.5), bent)


_ACTIVATIONS = {"RELU": _relu, "GELU": _gelu, "SILU": _silu}


def _replaced(module: Module, c: Computation, call: Instruction, body: Draft) -> Module:
    """Return the module with a fusion in place of the call, whose scratch memory nobody may read."""
    kept = len(body.results)
    readers = [i for i in c if call.name in i.operands]
    is_tuple = isinstance(call.shape, TupleShape)
    if is_tuple and not all(i.opcode == "get-tuple-element" and i.attributes["index"] < kept for i in readers):
        return module
    if is_tuple and call.is_root:
        return module
    name = fresh_name(f"{call.name}.operations", {x.name for x in module.computations})
    shapes = call.shape.elements[:kept] if isinstance(call.shape, TupleShape) else (call.shape,)
    shape = shapes[0] if kept == 1 else TupleShape(tuple(shapes))
    called = FrozenDict({"kind": "kCustom", "calls": name})
    fusion = replace(call, opcode="fusion", shape=shape, attributes=called)
    instructions: list[Instruction] = []
    for i in c:
        if i.name == call.name:
            instructions.append(fusion)
        elif i in readers and is_tuple and kept == 1:  # The only result, by the name of the element.
            instructions.append(replace(i, opcode="bitcast", attributes=FrozenDict(), shape=i.shape))
        else:
            instructions.append(i)
    module = replace_computation(module, replace(c, instructions=tuple(instructions)))
    at = next(n for n, x in enumerate(module.computations) if x.name == c.name)
    before, after = module.computations[:at], module.computations[at:]
    return replace(module, computations=(*before, body.computation(name), *after))
