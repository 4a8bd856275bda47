"""A reduction's combiner as a C++ functor, and what its accumulators start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jax_stitch.emit import scalar
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.graph.model import Graph, Node


@dataclass(frozen=True, slots=True)
class Reducer:
    """A functor ``name`` with the type ``T`` of its values and ``T combine(T, T)``.

    Of several operands ``T`` is a struct with members ``f0``, ``f1``, ... ``identity`` is the neutral value's text
    where the combiner is a single known operation, else ``None``: accumulators then start from the reduction's own
    initial values, as XLA's GPU reductions do.
    """

    name: str
    text: str
    dtypes: tuple[str, ...]
    identity: str | None

    @property
    def fields(self) -> int:
        return len(self.dtypes)

    def value(self, values: list[str]) -> str:
        """A value of type ``T`` from one C++ value per operand."""
        return values[0] if self.fields == 1 else f"{self.name}::{_made(self.dtypes, values)}"

    def field(self, value: str, k: int) -> str:
        return value if self.fields == 1 else f"{value}.f{k}"


def reducer(graph: Graph, reduce: Node, name: str) -> Reducer:
    """The combiner of ``reduce`` (``reduce`` or its partial form). Sub-word floats accumulate in float and are rounded
    once at the end.
    """
    combiner = reduce.graphs["to_apply"]
    operands = reduce.operands[: len(reduce.operands) // 2]
    dtypes = tuple(graph[o].tensor.dtype for o in operands)
    types = [scalar.computed_type(t) for t in dtypes]
    if len(types) == 1:
        alias = f"using T = {types[0]};"
    else:
        alias = _struct(dtypes)
    body, result = _body(combiner, dtypes)
    text = f"struct {name} {{ {alias} ST_MEMBER T combine(T a, T b) {{ {body}return {result}; }} }};"
    return Reducer(name, text, dtypes, _identity(combiner, dtypes[0]) if len(types) == 1 else None)


def _struct(dtypes: tuple[str, ...]) -> str:
    """``T`` for several operands. The widest come first, so that all padding is at the end, where it has a name: what
    makes a ``T`` then writes all its bytes, and the checking mode can ask that a byte is written before it is read."""
    sizes = [scalar.computed_bytes(t) for t in dtypes]
    padding = -sum(sizes) % max(sizes)
    members = [f"{scalar.computed_type(dtypes[k])} f{k};" for k in _placed(dtypes)]
    return f"struct T {{ {' '.join([*members, *[f'char padding[{padding}];'] * bool(padding)])} }};"


def _made(dtypes: tuple[str, ...], values: list[str]) -> str:
    return f"T{{{', '.join(values[k] for k in _placed(dtypes))}}}"


def _placed(dtypes: tuple[str, ...]) -> list[int]:
    """The operands in the order of their members in ``T``."""
    return sorted(range(len(dtypes)), key=lambda k: -scalar.computed_bytes(dtypes[k]))


def _body(combiner: Graph, dtypes: tuple[str, ...]) -> tuple[str, str]:
    fields = len(dtypes)
    wide = fields == 1
    names: dict[int, str] = {}
    for k, p in enumerate(combiner.parameters):
        side = "a" if k < fields else "b"
        names[p] = side if fields == 1 else f"{side}.f{k % fields}"
    lines: list[str] = []
    for node in combiner.nodes:
        if node.id in names:
            continue
        if node.op == "constant":
            assert node.literal is not None
            names[node.id] = scalar.literal(node.literal, node.tensor.dtype)
            continue
        dtype = node.tensor.dtype
        text = scalar.expression(
            node, [names[o] for o in node.operands], [combiner[o].tensor.dtype for o in node.operands]
        )
        if wide and dtype in scalar.HALF:
            text = _unrounded(text)
        names[node.id] = f"v{node.id}"
        lines.append(f"const {scalar.computed_type(dtype)} v{node.id} = {text}; ")
    results = [names[r] for r in combiner.results]
    return "".join(lines), results[0] if fields == 1 else _made(dtypes, results)


def _unrounded(text: str) -> str:
    """Partial sums of sub-word floats keep float's precision."""
    for dtype in scalar.HALF:
        prefix = f"st::round_to<{scalar.STORAGE[dtype]}>("
        if text.startswith(prefix):
            return text[len(prefix) : -1]
    return text


def _identity(combiner: Graph, dtype: str) -> str | None:
    value = neutral_value(combiner, dtype)
    return None if value is None else scalar.literal(np.asarray(value), dtype)
