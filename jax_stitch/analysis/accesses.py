"""What each element of a graph is computed from: the one analysis of accesses.

An element is a node and an index. What it reads is looked up once, and kept while its graph is planned; expressions
are hash-consed, so that comparing elements is comparing addresses. A ``View`` says which elements a kernel computes
itself and which it finds ready, and ``walk`` goes from elements down to those. Straight code (``locality.py``), loops
in threads (``loops/nest_walk.py``) and loops in teams (``loops/team.py``) are three views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import ref

from msgspec import Struct

from jax_stitch.analysis.maps import STEP, Index, Read, reads
from jax_stitch.analysis.results import Results
from jax_stitch.graph.model import Graph

Element = tuple[int, Index]

PARTIAL = "partial-reduce"
"""A reduction over the rows of one block each: the first step of a reduction across rows (its result's first dimension
is the block).
"""

LEAVES = frozenset({"constant", "iota", "parameter", STEP, "reduce", "sort", "get-tuple-element", PARTIAL})
"""Operations whose elements are made of no single elements of others, or of none."""


class Access(NamedTuple):
    """An element that another reads."""

    element: Element
    always: bool
    """Whether it is read whatever the index; not where the index decides, as in concatenate and pad."""
    branch: int | None = None
    """Where the index decides: on which side, by number. Data-dependent starts are read before the choice."""


class Accesses:
    """What the elements of one graph read."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        self._graph = ref(graph)  # What is kept of a graph must not keep it.
        self._reads: dict[Element, tuple[Read, ...]] = {}
        self._operands: dict[Element, tuple[Access, ...]] = {}
        self.written_out: dict[Element, tuple[Access, ...]] = {}
        """The same where reductions and products are written out term by term, as far as that has been asked."""

    @property
    def graph(self) -> Graph:
        """That graph, which whoever asks still holds."""
        graph = self._graph()
        assert graph is not None
        return graph

    def reads(self, element: Element) -> tuple[Read, ...]:
        """The reads of an element of an elementwise operation or of one that moves elements, with their conditions."""
        element_reads = self._reads.get(element)
        if element_reads is None:
            element_reads = self._reads[element] = reads(self.graph, self._nodes[element[0]], element[1])
        return element_reads

    def operands(self, element: Element) -> tuple[Access, ...]:
        """The elements that an element is computed from; none of ``LEAVES``."""
        operands = self._operands.get(element)
        if operands is None:
            operands = self._operands[element] = self._operands_of(element)
        return operands

    def _operands_of(self, element: Element) -> tuple[Access, ...]:
        node = self._nodes[element[0]]
        if node.op in LEAVES:
            return ()
        every = self.reads(element)
        chooses = any(r.guards for r in every)
        operands: list[Access] = []
        for k, read in enumerate(every):
            always = not read.guards
            operands.append(Access((node.operands[read.operand], read.index), always, k if chooses else None))
            operands += [Access((node.operands[o], at), always) for _, o, at in read.starts]
        return tuple(operands)


_accesses: Results[None, Accesses] = Results()


def accesses(graph: Graph) -> Accesses:
    """Return the accesses of a graph: the same object until results are forgotten."""
    return _accesses.get(graph, None, lambda: Accesses(graph))


COMPUTED, LOADED, CACHED, LEFT_OUT = "computed", "loaded", "cached", "left out"
"""What an element is in a kernel: computed by it, an element of its inputs, held where it was computed before, or none
of its concern.
"""


class View:
    """Which elements a kernel computes, and which it finds ready."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.accesses = accesses(graph)

    def kind(self, element: Element) -> str:
        """One of the four kinds; asked once for each element of a walk. May raise where it cannot be computed."""
        raise NotImplementedError

    def operands(self, element: Element) -> Sequence[Access]:
        """What an element that is computed reads."""
        return self.accesses.operands(element)


class Walk(Struct, frozen=True):
    """Every element on the way from some elements to what a kernel finds ready; each with whether it is needed whatever
    the index.
    """

    computed: Mapping[Element, bool]
    loaded: Mapping[Element, bool]
    """Of kernel inputs."""
    cached: Mapping[Element, bool]
    """Of values that the kernel holds."""


def walk(view: View, starts: Iterable[Element]) -> Walk:
    """Follows elements down to what the kernel finds ready. Each is visited once, or twice where it is first come upon
    under a condition.
    """
    computed: dict[Element, bool] = {}
    loaded: dict[Element, bool] = {}
    cached: dict[Element, bool] = {}
    by_kind = {COMPUTED: computed, LOADED: loaded, CACHED: cached, LEFT_OUT: dict[Element, bool]()}
    known: dict[Element, dict[Element, bool]] = {}
    kind, operands = view.kind, view.operands
    waiting = [Access(start, True) for start in starts]
    while waiting:
        here, always, _ = waiting.pop()
        own = known.get(here)
        if own is None:
            own = known[here] = by_kind[kind(here)]
        elif not always or own[here]:
            continue
        own[here] = always
        if own is computed:
            found = operands(here)
            waiting += found if always else [Access(a.element, False) for a in found]
    return Walk(computed, loaded, cached)
