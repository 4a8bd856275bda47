"""Calls of Python functions in programs (``jax.pure_callback``, ``io_callback``, ``jax.debug.print`` and so on).

In a program a function is a number in a list that goes to XLA beside it. A call that takes and returns a token is in
order with the others that do; to JAX it is an operation with an effect, for which it passes a token from one to the
next, also into loops and branches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from jax_stitch.util.jax_names import Primitive, ir, mlir
from jax_stitch.util.python_targets import is_python_call

Layouts = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""Of operands and of results, minor to major."""

_NUMBER = "index"
_TYPED_FFI = 4


@functools.cache
def effect_of_calls(ordered: bool) -> Any:
    """Return the effect by which JAX keeps a call of a Python function, or keeps it in order."""
    (effect,) = jax.make_jaxpr(lambda: io_callback(lambda: None, None, ordered=ordered))().effects
    return effect


def _abstract(*_: Any, results: Sequence[jax.core.ShapedArray], kept: Any, **__: Any) -> tuple[Any, set[Any]]:
    return list(results), set() if kept is None else {kept}


def _lower(
    ctx: Any,
    *operands: Any,
    function: Callable[..., Any],
    target: str,
    results: Sequence[jax.core.ShapedArray],
    layouts: Layouts | None,
    kept: Any,
) -> list[Any]:
    around = ctx.module_context
    around.add_host_callback(function)
    tokens = [ctx.tokens_in.get(kept)] if kept in ctx.tokens_in.effects() else []
    types = [*(mlir.token_type() for _ in tokens), *map(_tensor, results)]
    given, returned = layouts or ([_row_major(a) for a in ctx.avals_in], [_row_major(a) for a in results])
    before: list[Sequence[int]] = [()] * len(tokens)  # StableHLO gives a token a layout as well.
    attributes = {
        "call_target_name": ir.StringAttr.get(target),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), _TYPED_FFI),
        "has_side_effect": ir.BoolAttr.get(kept is not None),
        "backend_config": _numbered(len(around.host_callbacks) - 1),
        "operand_layouts": _layouts([*before, *given]),
        "result_layouts": _layouts([*before, *returned]),
    }
    call = ir.Operation.create(
        "stablehlo.custom_call", results=types, operands=[*tokens, *operands], attributes=attributes
    )
    outputs = list(call.results)
    if tokens:
        ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({kept: outputs[0]})))
    return outputs[len(tokens) :]


def renumber(module: ir.Module, first: int) -> None:
    """Renumber the functions that a StableHLO module calls, of a list of its own, from ``first`` on."""

    def visit(operation: Any) -> ir.WalkResult:
        attributes = operation.attributes
        if operation.name == "stablehlo.custom_call" and is_python_call(attributes["call_target_name"].value):
            key = "mhlo.backend_config" if "mhlo.backend_config" in attributes else "backend_config"
            attributes[key] = _numbered(attributes[key][_NUMBER].value + first)
        return ir.WalkResult.ADVANCE

    with module.context, ir.Location.unknown():
        module.operation.walk(visit)


def _numbered(number: int) -> ir.Attribute:
    return ir.DictAttr.get({_NUMBER: ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), number)})


def _layouts(orders: Sequence[Sequence[int]]) -> ir.Attribute:
    index = ir.IndexType.get()
    attributes = [ir.DenseIntElementsAttr.get(np.asarray(order, np.int64), type=index) for order in orders]
    return ir.ArrayAttr.get(attributes)


def _tensor(aval: Any) -> ir.Type:
    return ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def _row_major(aval: Any) -> tuple[int, ...]:
    return tuple(reversed(range(aval.ndim)))


python_call_p = Primitive("stitched_python_call")
"""Calls ``function``, as JAX has made it for XLA: of NumPy arrays, after a token where ``kept`` has an order.

Other parameters: ``target``; ``results``, the types; ``layouts``, or None for row-major ones; ``kept``, the effect by
which it is kept, None for a pure one.
"""
python_call_p.multiple_results = True
python_call_p.def_effectful_abstract_eval(_abstract)
mlir.register_lowering(python_call_p, _lower, cacheable=False)  # Each call has a number of its own, as in JAX.
