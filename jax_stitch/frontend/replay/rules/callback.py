"""Calls of Python functions, made again with the tokens and layouts that they had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.model import Node, NodeType, TensorType, TokenType, TupleType
from jax_stitch.util.python_calls import effect_of_calls, python_call_p

from .registry import Value

CALLBACK = "callback"
"""The name under which a rule finds the Python function that its node calls."""


def call_python(node: Node, operands: Sequence[Value], function: Callable[..., Any]) -> Value:
    """Call the Python function where ``node`` does; tokens in and out are None."""
    a = node.attributes
    elements = _elements(node.type)
    ordered = any(isinstance(e, TokenType) for e in elements)
    kept = ordered or a.get("custom_call_has_side_effect", False)
    tensors = [e for e in elements if isinstance(e, TensorType)]
    arrays = iter(
        python_call_p.bind(
            *(v for v in operands if v is not None),
            function=function,
            target=a["custom_call_target"],
            results=tuple(jax.core.ShapedArray(t.dims, ELEMENT_TYPES[t.dtype].numpy) for t in tensors),
            layouts=(a["operand_layouts"], a["result_layouts"]),
            kept=effect_of_calls(ordered) if kept else None,
        )
    )
    values = tuple(None if isinstance(e, TokenType) else next(arrays) for e in elements)
    return values if isinstance(node.type, TupleType) else values[0]


def _elements(type_: NodeType) -> tuple[NodeType, ...]:
    return type_.elements if isinstance(type_, TupleType) else (type_,)
