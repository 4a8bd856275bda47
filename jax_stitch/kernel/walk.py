"""What a statement or an expression is made of, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from jax_stitch.ir.indices.expr import Atom, Expr, Var, Within
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Counter, Ref
from jax_stitch.kernel.model import Kernel, Part, TeamShape
from jax_stitch.util.values import replace

Node = TypeVar("Node", bound=Struct)


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a kind of expression or statement, in order."""
    names: tuple[str, ...] = kind.__struct_fields__
    return names


def children(node: Any) -> Iterator[Any]:
    """Yield the values of a node's fields, and what tuples among them hold."""
    for value in astuple(node):
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def _flat(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


_NODES = Expr, Struct


def nodes(root: Any) -> Iterator[Any]:
    """Yield a statement or expression and all nodes inside it, in the order of fields; indices are not entered."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if type(node) is not Expr:
            waiting += [c for c in children(node) if isinstance(c, _NODES)][::-1]


def map_bodies(node: Node, rewrite: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Node:
    """Return a statement with ``rewrite`` applied to each body in it, those of its cases and the like too; the
    statement itself where that changes nothing.
    """
    changed: dict[str, Any] = {}
    for name in field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, tuple) and value and isinstance(value[0], Struct):
            is_body = type(node).__annotations__[name] == "Body"
            changed[name] = rewrite(value) if is_body else tuple(map_bodies(inner, rewrite) for inner in value)
    of_any_kind: Any = node
    made: Node = replace(of_any_kind, **changed)
    return made


def map_sweeps_of(part: Part, rewrite: Callable[[st.Items | st.Sums], st.Body]) -> Part:
    """Return a part with each sweep replaced by what ``rewrite`` makes of it."""

    def body(statements: st.Body) -> st.Body:
        made: list[st.Statement] = []
        for s in statements:
            made += rewrite(s) if isinstance(s, st.Items | st.Sums) else (map_bodies(s, body),)
        return tuple(made)

    return replace(part, body=body(part.body))


def map_sweeps(kernel: Kernel, rewrite: Callable[[st.Items | st.Sums], st.Body]) -> Kernel:
    """Return a kernel with each sweep of its teams of one thread replaced by what ``rewrite`` makes of it."""

    def part(old: Part) -> Part:
        is_one = isinstance(old.shape, TeamShape) and old.shape.threads == 1
        return map_sweeps_of(old, rewrite) if is_one else old

    return replace(kernel, parts=tuple(map(part, kernel.parts)))


def map_nodes(node: Any, kind: type[Any], rewrite: Callable[[Any], Any]) -> Any:
    """Return statements, or an expression, with ``rewrite`` applied to each index, statement or expression of a kind in
    them."""
    if isinstance(node, kind):
        return rewrite(node)
    if isinstance(node, tuple):
        return tuple(map_nodes(inner, kind, rewrite) for inner in node)
    if not isinstance(node, Struct):
        return node
    of_any_kind: Any = node
    changed = {name: map_nodes(getattr(node, name), kind, rewrite) for name in field_names(type(node))}
    return replace(of_any_kind, **changed)


def variables(index: Expr) -> Iterator[str]:
    """Yield the names in an index, in their order."""
    for atom, _ in index.terms:
        if isinstance(atom, Var):
            yield atom.name
        else:
            yield from variables(atom.of)


def names_read(root: Any) -> Iterator[str]:
    """Yield the names that an expression or a statement mentions, in order."""
    for node in nodes(root):
        if isinstance(node, Ref):
            yield node.name
        elif isinstance(node, Counter):
            yield node.variable
        elif isinstance(node, Expr):
            yield from variables(node)


def renamed(index: Expr, rename: Callable[[Var], Var]) -> Expr:
    """Return an index with other variables, its terms in their order."""
    return Expr(tuple((_atom(atom, rename), c) for atom, c in index.terms), index.offset, index.low, index.high)


def _atom(atom: Atom, rename: Callable[[Var], Var]) -> Atom:
    match atom:
        case Var():
            return rename(atom)
        case Within(of, low, high):
            return Within(renamed(of, rename), low, high)
        case _:
            return type(atom)(renamed(atom.of, rename), atom.by)
