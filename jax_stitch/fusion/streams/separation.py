"""Separation of a reduction's terms: what of them needs the results of other reductions over the same axis.

Reductions over one axis can run together, in one sweep, if none needs a result before the sweep ends. A term such as
``exp(s - max(s)) / sum(...) * v`` is separable: ``exp(s + w) * f * v``, where ``w = -max(s)`` and ``f = 1 / sum(...)``
do not change along the axis. The sweep sums ``exp(s - r) * v`` up, with the maximum ``r`` of ``s`` so far, which is
corrected by ``exp(r_before - r)`` when it grows, and multiplies by ``exp(r + w) * f`` at the end. So no exponential is
taken of what may overflow, whatever ``w`` is.

Sums of terms ``s + w`` are not separated: ``sum((x - mean)^2)`` would cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct

from jax_stitch.analysis.binding import Factor
from jax_stitch.fusion.streams.stream import MOVES, Key, Stream, depending, has
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Graph, Node

_FLOATS = ("f64", "f32", "bf16", "f16")


class Kind(Enum):
    """How a value depends on results of the reductions."""

    FREE = "free"
    """Not at all."""
    ROW = "row"
    """It does not change along the axis."""
    SHIFTED = "shifted"
    """A free value, plus ``shift``."""
    SCALED = "scaled"
    """A free value, times ``exp(x + shift)`` for the free value ``x`` of ``exponent``, times ``factor``."""
    MIXED = "mixed"
    """In another way."""


class Made(Struct, frozen=True):
    """A value along rows: an operation on such values."""

    op: str
    operands: tuple[Row, ...]


Row = Key | Made
"""A value that does not change along the axis: a member, a leaf, or made of such."""


class Form(Struct, frozen=True):
    """The form of a value. ``exponent`` is the member whose free part is that of the exponential."""

    kind: Kind
    shift: Row | None = None
    exponent: Key | None = None
    factor: Row | None = None


FREE, ROW, MIXED = Form(Kind.FREE), Form(Kind.ROW), Form(Kind.MIXED)


def forms(stream: Stream) -> dict[Key, Form]:
    """Return the form of each member, leaf and reduction of a stream, with no reduction known."""
    found: dict[Key, Form] = dict.fromkeys(stream.leaves(), FREE)
    found.update(dict.fromkeys(stream.reductions, ROW))
    for key in stream.members:
        found[key] = _form(stream, key, found)
    return found


def first_sweep(stream: Stream) -> Stream | None:
    """Return the stream of those reductions that can run in one sweep, before all others; None where there are none."""
    stream = stream.only(stream.reductions)
    while stream.reductions:
        known, graph = forms(stream), stream.graph
        after = depending(graph, {r.node for r in stream.reductions})
        late = _made_of(stream, {leaf for leaf in stream.leaves() if leaf.node in after})
        runs = [
            r
            for r in stream.reductions
            if r not in late and _runs(graph[r.node], [known[o] for o in stream.operands[r]])
        ]
        if len(runs) == len(stream.reductions):
            return stream
        stream = stream.only(runs)
    return None


def _made_of(stream: Stream, keys: set[Key]) -> set[Key]:
    """Return the members and reductions that need some leaves."""
    found = set(keys)
    ordered = sorted((*stream.members, *stream.reductions), key=lambda key: key.node)
    for key in ordered:
        if not found.isdisjoint(stream.operands[key]):
            found.add(key)
    return found


def _runs(node: Node, terms: Sequence[Form]) -> bool:
    kinds = [t.kind for t in terms]
    if node.op == "dot":
        return Kind.FREE in kinds and set(kinds) <= {Kind.FREE, Kind.SCALED}
    if kinds[1] is not Kind.FREE:  # what it starts from
        return False
    by = combines_by(node.graphs["to_apply"], 0)
    return kinds[0] is Kind.FREE or kinds[0] is (Kind.SCALED if by == "add" else Kind.SHIFTED)


def _form(stream: Stream, key: Key, known: Mapping[Key, Form]) -> Form:
    node, operands = stream.graph[key.node], stream.operands[key]
    terms = [known[o] for o in operands]
    kinds = [t.kind for t in terms]
    if all(k is Kind.FREE for k in kinds):
        return FREE
    if Kind.MIXED in kinds:
        return MIXED
    if all(_is_row(o, t, stream.axis) for o, t in zip(operands, terms, strict=True)) and node.op != "dot":
        return ROW
    if node.op in MOVES:
        return terms[0]
    if node.tensor.dtype not in _FLOATS:
        return MIXED
    rule = _RULES.get(node.op)
    return MIXED if rule is None else rule(stream.graph, node, operands, terms) or MIXED


def _is_row(key: Key, form: Form, axis: Factor) -> bool:
    return form.kind is Kind.ROW or (form.kind is Kind.FREE and not has(key.binding, axis))


def _shift(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    """Return the form of a sum or difference."""
    if any(t.kind is Kind.SCALED for t in terms):
        return None
    parts: list[Row] = []
    for number, (o, t) in enumerate(zip(operands, terms, strict=True)):
        part = o if t.kind is Kind.ROW else t.shift
        if part is not None:
            parts.append(Made("negate", (part,)) if number and node.op == "subtract" else part)
    return Form(Kind.SHIFTED, parts[0] if len(parts) == 1 else Made("add", tuple(parts)))


def _negated(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    (term,) = terms
    if term.kind is Kind.SCALED:
        return term
    assert term.shift is not None
    return Form(Kind.SHIFTED, Made("negate", (term.shift,)))


def _product(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    """Return the form of a product or quotient. A quotient by what changes along the axis is none, unless that is
    free.
    """
    if any(t.kind is Kind.SHIFTED for t in terms):
        return _shifted_product(graph, node, operands, terms)
    scaled = [t for t in terms if t.kind is Kind.SCALED]
    divides = node.op == "divide"
    if len(scaled) > 1 or (divides and terms[1].kind is Kind.SCALED):
        return None
    form = scaled[0] if scaled else Form(Kind.SCALED)
    factor = form.factor
    for number, (o, t) in enumerate(zip(operands, terms, strict=True)):
        if t.kind is not Kind.ROW:
            continue
        part = Made("divide", (o,)) if divides and number else o
        factor = part if factor is None else Made("multiply", (factor, part))
    return Form(Kind.SCALED, form.shift, form.exponent, factor)


def _shifted_product(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    """Return the form of a shifted value times or over a free one that does not change along the axis."""
    for number, (o, t) in enumerate(zip(operands, terms, strict=True)):
        if t.kind is not Kind.FREE or constant(graph, o.node) is None or (node.op == "divide" and number == 0):
            continue
        shift = terms[1 - number].shift
        assert shift is not None
        return Form(Kind.SHIFTED, Made(node.op, (shift, o)))
    return None


def _exponential(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    (term,) = terms
    return Form(Kind.SCALED, term.shift, operands[0]) if term.kind is Kind.SHIFTED else None


def _selected(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    """Return the form of a choice between a value and what is neutral for it."""
    if terms[0].kind is not Kind.FREE:
        return None
    for value, other in ((1, 2), (2, 1)):
        number = constant(graph, operands[other].node)
        neutral = {Kind.SHIFTED: -np.inf, Kind.SCALED: 0.0}.get(terms[value].kind)
        if number is not None and neutral is not None and number == neutral:
            return terms[value]
    return None


def _converted(graph: Graph, node: Node, operands: Sequence[Key], terms: Sequence[Form]) -> Form | None:
    """Return the form of a float in another type: a shifted one keeps all its bits, or is rounded as what it is
    computed from has been.
    """
    (term,) = terms
    source, made = graph[operands[0].node].tensor.dtype, node.tensor.dtype
    if source not in _FLOATS:
        return None
    if term.kind is Kind.SHIFTED and _FLOATS.index(made) > min(1, _FLOATS.index(source)):
        return term if made == "bf16" and _is_of(graph, operands[0].node, made) else None
    return term


def _is_of(graph: Graph, i: int, dtype: str) -> bool:
    """Return whether a value is a sum or difference of values of a narrower type, widened to be computed with: XLA has
    no other way to compute with bfloat16 on many devices.
    """
    return graph[i].op in ("add", "subtract") and all(_widened_from(graph, o) == dtype for o in graph[i].operands)


def _widened_from(graph: Graph, i: int) -> str | None:
    node = graph[i]
    while node.op in MOVES:
        node = graph[node.operands[0]]
    return graph[node.operands[0]].tensor.dtype if node.op == "convert" else None


_RULES = {
    "add": _shift,
    "subtract": _shift,
    "negate": _negated,
    "multiply": _product,
    "divide": _product,
    "exponential": _exponential,
    "select": _selected,
    "convert": _converted,
}


def constant(graph: Graph, i: int) -> float | None:
    """Return the number that a value is everywhere, if it is a known one."""
    node = graph[i]
    while node.op in ("broadcast", "reshape"):
        node = graph[node.operands[0]]
    if node.literal is None or node.literal.size != 1 or node.tensor.dtype not in _FLOATS:
        return None
    return float(node.literal.reshape(-1)[0])
