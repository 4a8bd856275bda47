"""How often a kernel's text computes each value: what is read under a condition is written out where it is read.

``concatenate`` and ``pad`` choose what they read by the index. Each choice has a scope of its own, so that a value that
several of them read is written once in each. Where such choices stand in each other, as in ``associative_scan``, the
text would double with each level. Here the scopes are counted, without writing anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from jax_stitch.analysis.accesses import Access, Element, accesses
from jax_stitch.graph.model import Graph

CHOICES = frozenset({"concatenate", "pad", "dynamic-update-slice"})
"""Operations that choose what they read by the index."""

MOST = 256
"""Choices in each of which an element may be computed; more are not counted."""

_Scopes = set[int]


def counts(
    graph: Graph,
    starts: Iterable[Element],
    computed: Collection[Element],
    operands: Callable[[Element], Iterable[Access]] | None = None,
) -> Counter[Element]:
    """Return how often each element is written, up to ``MOST`` + 1, in a text that computes ``starts``. It computes
    ``computed``, and finds the rest ready.

    ``operands`` says what an element reads, where the graph alone does not. Time is linear in the elements.
    """
    if not any(graph[i].op in CHOICES for i, _ in computed):
        return Counter(dict.fromkeys(computed, 1))
    inside = frozenset(computed)
    first = [e for e in dict.fromkeys(starts) if e in inside]
    below: dict[Element, list[Access]] = {}
    order = _before_what_they_read(first, inside, below, operands or accesses(graph).operands)
    scopes: dict[Element, _Scopes] = {e: {_WHOLE} for e in first}
    branches: dict[tuple[int, Element, int], int] = {}
    for element in order:
        for child, _, branch in below[element]:
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
    below: dict[Element, list[Access]],
    operands: Callable[[Element], Iterable[Access]],
) -> list[Element]:
    """Return the elements below ``starts``, each before all that it reads; fills ``below`` with what each reads
    inside.
    """
    done: list[Element] = []
    waiting = list(starts)
    while waiting:
        element = waiting[-1]
        if element not in below:
            below[element] = [a for a in operands(element) if a.element in inside]
            waiting += [a.element for a in below[element] if a.element not in below]
            continue
        waiting.pop()
        done.append(element)
    return list(reversed(dict.fromkeys(done)))
