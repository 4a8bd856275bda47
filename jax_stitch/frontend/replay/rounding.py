"""A replay that computes otherwise where HLO leaves that open: what roundings are, and in which order elements come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import lax

from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY

_moves: ContextVar[tuple[float, Any] | None] = ContextVar("jax_stitch_rounding", default=None)


@contextmanager
def rounded_otherwise(step: float, seed: Any) -> Iterator[None]:
    """Move each result of an inexact operation that is traced meanwhile by up to ``step`` of itself, each element by
    another factor. ``seed`` (a 32-bit integer, traced or not) chooses the factors.

    Inexact are the heavy elementwise operations (exponentials, quotients of them, and so on), of which two compilers
    have two versions, and conversions of integers to floating values: these stand where arguments have no digits to
    move. Regions of reductions, scatters and sorts stay as they are, but the elements come to them in another order,
    see ``reordered``. And what is no number after arithmetic has a sign that says nothing: plus where the seed is 1,
    minus where it is 2.
    """
    before = _moves.set((step, seed))
    try:
        yield
    finally:
        _moves.reset(before)


def rounded(graph: Graph, node: Node, value: Any) -> Any:
    """Return a node's value, moved under ``rounded_otherwise``."""
    moves = _moves.get()
    if moves is None or node.op not in ELEMENTWISE or not _is_float_array(node):
        return value
    step, seed = moves
    if node.op in HEAVY or node.op in _ARITHMETIC:
        value = _signed(value, seed)
    if not _is_inexact(graph, node):
        return value
    wide = jnp.float64 if value.dtype == jnp.float64 else jnp.float32
    factor = 1 + step * _noise(value.shape, node.id, seed).astype(wide)
    return (value.astype(wide) * factor).astype(value.dtype)


def reordered(node: Node, operands: Sequence[Any], dimensions: Sequence[int]) -> list[Any]:
    """Return arrays that an operation may take in any order along these dimensions, all alike: backwards if the seed of
    ``rounded_otherwise`` is 0, as they are if it is 1, else at random. Of equal elements, the first and the last are so
    each first once.
    """
    moves = _moves.get()
    if moves is None:
        return list(operands)
    seed = jnp.asarray(moves[1], jnp.uint32)
    for dimension in dimensions:
        places = lax.iota(jnp.int32, operands[0].shape[dimension])
        order = jnp.argsort(_noise(places.shape, node.id, seed))
        order = jnp.where(seed == 0, jnp.flip(places), jnp.where(seed == 1, places, order))
        operands = [jnp.take(o, order, axis=dimension) for o in operands]
    return list(operands)


def is_reordered() -> bool:
    """Return whether operations take elements in another order now."""
    return _moves.get() is not None


def _is_inexact(graph: Graph, node: Node) -> bool:
    if node.op == "convert":
        return not _is_floating(graph[node.operands[0]].tensor)
    return node.op in HEAVY


_ARITHMETIC = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})
"""Operations of processors that choose the sign of what is no number, or leave it to compilers."""


def _signed(value: Any, seed: Any) -> Any:
    seed = jnp.asarray(seed, jnp.uint32)
    no_number = jnp.copysign(jnp.full_like(value, jnp.nan), jnp.where(seed == 2, -1, 1).astype(value.dtype))
    return jnp.where(jnp.isnan(value) & (seed > 0), no_number, value)


def _is_float_array(node: Node) -> bool:
    return isinstance(node.type, TensorType) and _is_floating(node.type)


def _is_floating(type_: TensorType) -> bool:
    return type_.dtype in ("f64", "f32", "f16", "bf16")


def _noise(shape: tuple[int, ...], number: int, seed: Any) -> Any:
    """Return factors in [-1, 1), unlike for each element, node and seed: a hash of the three."""
    mixed = lax.iota(jnp.uint32, prod(shape)) * jnp.uint32(0x9E3779B9) + jnp.uint32(number * 0x85EBCA6B & 0xFFFFFFFF)
    mixed = mixed + jnp.asarray(seed, jnp.uint32) * jnp.uint32(0xC2B2AE35)
    for factor in (0x7FEB352D, 0x846CA68B):
        mixed = (mixed ^ (mixed >> jnp.uint32(16))) * jnp.uint32(factor)
    return (mixed.astype(jnp.float64) / 2**31 - 1).reshape(shape)
