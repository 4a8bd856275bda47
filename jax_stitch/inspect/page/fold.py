"""Folding what repeats: the operations of alike layers, and those of one call of a library's function, as one node.

A model's layers are found by their scopes (``encoder/EncoderLayer_3``, where one has three numbers or more), or,
where there are no scopes, as operations of one line and type that read alike values.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax_stitch.inspect.planned.model import Operation
from jax_stitch.inspect.planned.names import inner_function

LEAST = 3
"""Members of a fold."""

_NUMBER = re.compile(r"\d+")
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the folded drawing."""

    label: str
    times: int
    """Layers that have it."""
    members: tuple[int, ...]


def folded(operations: Sequence[Operation], drawn: Sequence[int]) -> list[Group]:
    """Return the operations that are ``drawn``, in groups, by their first members."""
    normal = _normalised({operations[i].scope for i in drawn})
    seen: Counter[_Key] = Counter()
    keys: dict[int, tuple[_Key, _Key]] = {}
    for i in drawn:
        keys[i] = _key(operations[i], normal, seen)
    by_key: dict[_Key, list[int]] = defaultdict(list)
    instances: dict[_Key, set[_Key]] = defaultdict(set)
    for i in drawn:
        key, instance = keys[i]
        if not instance and key[0] != "call":
            key = (*key, tuple(sorted({repr(keys[o][0]) for o in operations[i].operands if o in keys})))
        by_key[key].append(i)
        instances[key].add(instance)
    groups: list[Group] = []
    for key, members in by_key.items():
        if key[0] == "call" and len(members) > 1:
            groups.append(Group(str(key[1]), len(instances[key]), tuple(members)))
        elif len(members) >= LEAST:
            groups.append(Group(operations[members[0]].op, len(members), tuple(members)))
        else:
            groups += [Group(operations[i].op, 1, (i,)) for i in members]
    return sorted(groups, key=lambda g: g.members[0])


def _key(operation: Operation, normal: Mapping[str, tuple[str, _Key]], seen: Counter[_Key]) -> tuple[_Key, _Key]:
    """Return what an operation is one of, and of which layer."""
    call = inner_function(operation.scope)
    scope, instance = normal[operation.scope]
    if call:
        depth = call.count("/")
        name = call.rpartition("jit(")[2].strip("()")
        return ("call", name, "/".join(scope.split("/")[: depth + 1]), operation.parent), instance
    if operation.op == "parameter":
        return ("op", "parameter", operation.type), ()
    key: _Key = ("op", operation.op, operation.type, operation.source, scope, operation.parent)
    if not instance:
        return key, ()
    seen[(*key, instance)] += 1  # The first, second, ... of its kind in the layer.
    return (*key, seen[(*key, instance)]), instance


def _normalised(scopes: set[str]) -> dict[str, tuple[str, _Key]]:
    """Return each scope without the numbers of its layers, and these numbers."""
    numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for scope in scopes:
        for prefix, component, digits in _components(scope):
            numbers[prefix, component].add(digits)
    repeated = {at for at, distinct in numbers.items() if len(distinct) >= LEAST}
    result: dict[str, tuple[str, _Key]] = {}
    for scope in scopes:
        words: list[str] = []
        instance: list[object] = []
        for (prefix, component, digits), plain in zip(_components(scope), scope.split("/"), strict=True):
            if (prefix, component) in repeated and digits:
                words.append(component)
                instance.append(digits)
            else:
                words.append(plain)
        result[scope] = "/".join(words), tuple(instance)
    return result


def _components(scope: str) -> list[tuple[str, str, str]]:
    """Return, for each component, what is around it, itself with # for its numbers, and these."""
    components: list[tuple[str, str, str]] = []
    prefix = ""
    for word in scope.split("/"):
        plain = _NUMBER.sub("#", word)
        components.append((prefix, plain, " ".join(_NUMBER.findall(word))))
        prefix += "/" + plain
    return components
