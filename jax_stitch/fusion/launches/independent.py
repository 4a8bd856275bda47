"""Taking a pattern apart where its pieces have nothing but scalars in common.

All tensors of one shape that an optimizer updates are local under one split, and read the same scalars. As one pattern
every thread would run along dozens of arrays at a time; as patterns of their own they share a launch all the same where
that pays (packing), their code once, and each block has the arrays of one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.inputs_outputs import inputs_of, outputs_of
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import is_of_one_number
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.util.groups import Groups


def apart(graph: Graph, pattern: Pattern) -> list[Pattern]:
    """Return the pieces of an elementwise pattern. The scalars between them belong to none: each use rematerialises
    them.
    """
    if any(graph[i].op == "reduce" or not isinstance(graph[i].type, TensorType) for i in pattern.nodes):
        return [pattern]
    alike = _scalars_given(graph, pattern)
    if pattern.blocks is not None or alike & set(pattern.outputs):
        return [pattern]
    pieces = Groups(pattern.nodes - alike)
    for i in pattern.nodes - alike:
        pieces.join(i, *(o for o in graph[i].operands if o in pattern.nodes and o not in alike))
    groups = pieces.all()
    if len(groups) < 2:
        return [pattern]
    groups.sort(key=min)
    bindings = _bindings(graph, pattern, groups)
    return [_piece(graph, pattern, frozenset(nodes), own) for nodes, own in zip(groups, bindings, strict=True)]


def _bindings(graph: Graph, pattern: Pattern, groups: Sequence[Sequence[int]]) -> list[dict[int, Binding]]:
    """Return, for each group, the bindings of what it computes and reads."""
    group_of = {i: k for k, nodes in enumerate(groups) for i in nodes}
    found: list[dict[int, Binding]] = [{} for _ in groups]
    for i, binding in pattern.bindings.items():
        for k in {group_of[u] for u in (i, *graph.users[i]) if u in group_of}:
            found[k][i] = binding
    return found


def _piece(graph: Graph, pattern: Pattern, nodes: frozenset[int], bindings: Mapping[int, Binding]) -> Pattern:
    return Pattern(nodes, pattern.rows, bindings, inputs_of(graph, nodes), outputs_of(graph, nodes))


def _scalars_given(graph: Graph, pattern: Pattern) -> set[int]:
    """Return the scalars of a pattern that are made of nothing but scalars and what it reads. One that is taken from an
    array of the pattern, as by a slice, stays with that array: left out, it would stand between the array and its
    readers.
    """
    scalars: set[int] = set()
    for i in sorted(pattern.nodes):
        if _is_scalar(graph, i) and all(o in scalars or o not in pattern.nodes for o in graph[i].operands):
            scalars.add(i)
    return scalars


def _is_scalar(graph: Graph, i: int) -> bool:
    """Return whether a value is one number, or the same number everywhere."""
    return is_of_one_number(graph, i) or graph[i].tensor.size == 1
