"""Elementwise parts on a GPU: a row is as many elements as a thread reads and writes at once.

A pattern of elementwise operations has a row for each element. One element at a time, a thread spends more instructions
on indices than on data: a load of 4 bytes takes as many as one of 16. So rows that are neighbours in memory become one.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, Dim, Factor, inner_sizes
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.support import ROOTS
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.schedule.split import CUDA_BLOCK, WAVES
from jax_stitch.schedule.vectors import ACCESS


def in_vectors(graph: Graph, pattern: Pattern, device: Device) -> Pattern:
    """Return ``pattern`` with rows of several elements each, if it is elementwise and there are enough of them."""
    if device.target.lanes_are_vectors or not _is_elementwise(graph, pattern):
        return pattern
    by = ACCESS // max(_widths(graph, pattern), default=ACCESS)
    while by > 1:
        if pattern.rows % by == 0 and pattern.rows // by >= WAVES * device.multiprocessors * CUDA_BLOCK:
            bindings = {i: _coarser(b, by) for i, b in pattern.bindings.items()}
            known = {i: b for i, b in bindings.items() if b is not None}
            if len(known) == len(bindings) and all(_in_memory_order(known[i], by) for i in _held(pattern)):
                return replace(pattern, rows=pattern.rows // by, bindings=known)
        by //= 2
    return pattern


def _is_elementwise(graph: Graph, pattern: Pattern) -> bool:
    """Return whether each row is one element of each value, that needs no other row's."""
    if pattern.loop is not None or pattern.blocks is not None:
        return False
    if any(graph[i].op in (*ROOTS, PARTIAL) or not isinstance(graph[i].type, TensorType) for i in pattern.inside):
        return False
    return all(i in pattern.bindings for i in pattern.outputs) and all(
        prod(inner_sizes(b)) == 1 for b in pattern.bindings.values()
    )


def _held(pattern: Pattern) -> list[int]:
    """Return what has an element for each row, and stands in memory."""
    return [i for i in (*pattern.inputs, *pattern.outputs) if i in pattern.bindings]


def _widths(graph: Graph, pattern: Pattern) -> list[int]:
    """Return bytes of their elements."""
    return [ELEMENT_TYPES[graph[i].tensor.dtype].numpy.itemsize for i in _held(pattern)]


def _in_memory_order(binding: Binding, by: int) -> bool:
    """Return whether the elements of a row are neighbours in memory, and not in a transposed array's."""
    last = next((dim[-1] for dim in reversed(binding) if dim), None)
    return last == Factor(by)


def _coarser(binding: Binding, by: int) -> Binding | None:
    """Return the binding to rows of ``by`` neighbours each; None where these are not neighbours in the value."""
    dims: list[Dim] = []
    for dim in binding:
        factors: list[Factor] = []
        for f in dim:
            assert f.stride is not None
            if f.stride % by == 0:
                factors.append(Factor(f.size, f.stride // by))
            elif f.stride == 1 and f.size % by == 0:
                factors += [Factor(f.size // by, 1)] * (f.size > by)
                factors.append(Factor(by))
            else:
                return None
        dims.append(tuple(factors))
    return tuple(dims)
