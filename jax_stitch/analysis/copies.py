"""How often a kernel's text computes each value: what is read under a condition is written out where it is read.

``concatenate`` and ``pad`` choose what they read by the index. Each choice has a scope of its own, so that a value that
several of them read is written once in each. Where such choices stand in each other, as in ``associative_scan``, the
text would double with each level. Here the scopes are counted, without writing anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from jax_stitch.analysis import reads
from jax_stitch.analysis.known import remembered
from jax_stitch.analysis.locality import Element
from jax_stitch.graph.model import Graph

CHOICES = frozenset({"concatenate", "pad", "dynamic-update-slice"})
"""Operations that choose what they read by the index."""

MOST = 256
"""Choices in each of which an element may be computed; more are not counted."""

Child = tuple[Element, int | None]
"""An element that another reads, and under which branch of its choice, where it chooses."""

_Scopes = set[int]


def children(graph: Graph, element: Element) -> list[Child]:
    """What the text of an element reads: where its data-dependent indices stand before any choice."""
    node = graph[element[0]]
    here = reads(graph, node, element[1])
    chooses = any(r.guards for r in here)
    found: list[Child] = [((node.operands[o], at), None) for r in here for _, o, at in r.starts]
    return found + [((node.operands[r.operand], r.index), k if chooses else None) for k, r in enumerate(here)]


def counts(
    graph: Graph,
    starts: Iterable[Element],
    computed: Collection[Element],
    children_of: Callable[[Element], Iterable[Child]] | None = None,
) -> Counter[Element]:
    """How often each element is written, up to ``MOST`` + 1, in a text that computes ``starts``. It computes
    ``computed``, and finds the rest ready.

    ``children_of`` says what an element reads, where not ``children`` does. Time is linear in the elements.
    """
    if not any(graph[i].op in CHOICES for i, _ in computed):
        return Counter(dict.fromkeys(computed, 1))
    inside = frozenset(computed)
    first = [e for e in dict.fromkeys(starts) if e in inside]
    below: dict[Element, list[Child]] = {}
    read = remembered(graph, "children")

    def found(element: Element) -> Iterable[Child]:
        if element not in read:
            read[element] = children(graph, element)
        return read[element]

    order = _before_what_they_read(first, inside, below, children_of or found)
    scopes: dict[Element, _Scopes] = {e: {_WHOLE} for e in first}
    branches: dict[tuple[int, Element, int], int] = {}
    for element in order:
        for child, branch in below[element]:
            known = scopes.setdefault(child, set())
            for scope in scopes[element]:
                if len(known) > MOST:
                    break
                if branch is not None:
                    scope = branches.setdefault((scope, element, branch), len(branches) + 1)
                known.add(scope)
    return Counter({element: len(own) for element, own in scopes.items()})


_WHOLE = 0
"""The scope around all choices."""


def _before_what_they_read(
    starts: Iterable[Element],
    inside: Collection[Element],
    below: dict[Element, list[Child]],
    children_of: Callable[[Element], Iterable[Child]],
) -> list[Element]:
    """The elements below ``starts``, each before all that it reads; fills ``below`` with what each reads inside."""
    done: list[Element] = []
    waiting = list(starts)
    while waiting:
        element = waiting[-1]
        if element not in below:
            below[element] = [c for c in children_of(element) if c[0] in inside]
            waiting += [e for e, _ in below[element] if e not in below]
            continue
        waiting.pop()
        done.append(element)
    return list(reversed(dict.fromkeys(done)))
