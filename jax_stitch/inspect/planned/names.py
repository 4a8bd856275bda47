"""What a kernel is called in the words of the user's program: ``LayerNorm_1 backward, model.py:12-14``."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from jax_stitch.graph.labels import line_runs
from jax_stitch.inspect.planned.model import Operation
from jax_stitch.util.source_files import source_text

_WRAPPED = re.compile(r"^(jvp|transpose|vmap|remat|checkpoint|custom_jvp|custom_vjp)\((.*)\)$")
_OF_JAX = frozenset({"while", "body", "cond", "closed_call", "checkpoint", "rematted_computation", "branch", "scan"})
_SHOWN = 2
"""Scopes, and runs of lines, in a name."""


def title(members: Sequence[tuple[Operation, float]], fallback: str) -> str:
    """Return a kernel's name; ``members`` are its operations with their weights, ``fallback`` is for no known
    origin.
    """
    where = _lines(members)
    what = _what(members) or fallback
    directions = {is_backward(o.scope) for o, _ in members if o.scope}
    direction = " forward and backward" if len(directions) > 1 else " backward" if True in directions else ""
    return f"{what}{direction}, {where}" if where else f"{what}{direction}"


def is_backward(scope: str) -> bool:
    """Return whether JAX's transposition made the operation, as it does for gradients."""
    return "transpose(" in scope


def scopes_of(scope: str) -> tuple[str, ...]:
    """Return the user's scopes, outermost first, without what JAX's transformations and its own functions wrote."""
    scopes: list[str] = []
    for component in _components(scope):
        while wrapped := _WRAPPED.match(component):
            component = wrapped.group(2)
        if component.startswith("jit("):
            break  # A function of a library's own, such as jnp.var: the user wrote what is around it.
        if component and component not in _OF_JAX and "." not in component and not component.startswith("branch_"):
            scopes.append(component)
    return tuple(scopes)


def inner_function(scope: str) -> str:
    """Return the function of a library that an operation is in, with what is around it, as ``.../jit(_take)``; or
    empty.
    """
    components = _components(scope)
    for n, component in enumerate(components):
        inner = component
        while wrapped := _WRAPPED.match(inner):
            inner = wrapped.group(2)
        if inner.startswith("jit("):
            return "/".join([*components[:n], inner])
    return ""


def _components(scope: str) -> list[str]:
    """Return a path split at slashes outside parentheses: a named scope may hold a slash, and JAX wraps whole paths."""
    components, depth, start = [], 0, 0
    for n, c in enumerate(scope):
        depth += (c == "(") - (c == ")")
        if c == "/" and depth <= 0:
            components.append(scope[start:n])
            start = n + 1
    return [*components, scope[start:]]


def _what(members: Sequence[tuple[Operation, float]]) -> str:
    weights: defaultdict[str, float] = defaultdict(float)
    for operation, weight in members:
        scopes = scopes_of(operation.scope)
        name = "/".join(scopes[-_SHOWN:]) if scopes else _function_at(operation.source)
        if name:
            weights[name] += 1e-9 + weight
    return _first(weights, " + ")


def _first(weights: Mapping[str, float], separator: str) -> str:
    names = sorted(weights, key=lambda name: -weights[name])[:_SHOWN]
    more = len(weights) - len(names)
    return separator.join(names) + (f" + {more} more" if more else "")


def _lines(members: Sequence[tuple[Operation, float]]) -> str:
    weights: defaultdict[str, float] = defaultdict(float)
    lines: dict[str, set[int]] = {}
    for operation, weight in members:
        file, line = place_of(operation.source)
        if file:
            weights[file] += 1e-9 + weight
            lines.setdefault(file, set()).add(line)
    words = []
    for file in sorted(weights, key=lambda name: -weights[name])[:1]:
        runs = line_runs(sorted(lines[file]))
        words.append(f"{PurePath(file).name}:{','.join(runs[:_SHOWN])}" + (",…" if len(runs) > _SHOWN else ""))
    others = len(lines) - 1
    more = f" and {others} more file{'s' if others > 1 else ''}" if others > 0 else ""
    return words[0] + more if words else ""


def place_of(source: str) -> tuple[str, int]:
    """Return (file, line) of ``file:line``; ("", 0) of what is none."""
    file, _, line = source.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else ("", 0)


def _function_at(source: str) -> str:
    """Return the function around a line, where its file can be read."""
    file, line = place_of(source)
    inside = [(start, name) for start, end, name in _functions(file) if start <= line <= end] if file else []
    return max(inside)[1] if inside else ""


@functools.lru_cache(maxsize=64)
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
    """Return (first line, last line, name) of each function of a file."""
    try:
        tree = ast.parse(source_text(file) or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or written to be hard to read
        return ()
    return tuple(_spans(ast.walk(tree)))


def _spans(nodes: Iterable[ast.AST]) -> Iterable[tuple[int, int, str]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or node.lineno, node.name
