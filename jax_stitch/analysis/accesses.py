"""The one analysis of accesses: the elements that each element of a graph is computed from.

An element is a node and an index. Its reads are computed once, and cached while its graph is planned; expressions are
hash-consed, so that comparing elements is comparing addresses. A ``View`` decides which elements a kernel computes and
which are ready, and ``walk`` goes from elements down to the ready ones. Straight code (``locality.py``), loops in
threads (``loops/nest_walk.py``) and loops in teams (``loops/teams/team.py``) are three views.
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
"""Operations whose elements depend on no single elements of others, or on none at all."""


class Access(NamedTuple):
    """An element that another reads."""

    element: Element
    always: bool
    """True if it is read for every index; False where the index decides, as in concatenate and pad."""
    branch: int | None = None
    """The number of the alternative where the index decides. Data-dependent starts are read before the choice."""


class Accesses:
    """The reads of the elements of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        self._graph = ref(graph)  # Cached results of a graph must not keep it alive.
        self._reads: dict[Element, tuple[Read, ...]] = {}
        self._operands: dict[Element, tuple[Access, ...]] = {}
        self.written_out: dict[Element, tuple[Access, ...]] = {}
        """The same with reductions and products expanded term by term, as far as it has been computed."""

    @property
    def graph(self) -> Graph:
        """Return the graph, which the caller still holds."""
        graph = self._graph()
        assert graph is not None
        return graph

    def reads(self, element: Element) -> tuple[Read, ...]:
        """Return the reads of an element of an elementwise operation or of one that moves elements, with conditions."""
        element_reads = self._reads.get(element)
        if element_reads is None:
            element_reads = self._reads[element] = reads(self.graph, self._nodes[element[0]], element[1])
        return element_reads

    def operands(self, element: Element) -> tuple[Access, ...]:
        """Return the elements that an element is computed from; for ``LEAVES`` an empty tuple."""
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
"""The kinds of an element in a kernel: computed by it, loaded from an input, held since it was computed before, or not
part of the kernel.
"""


class View:
    """A kernel's view of a graph: the elements that it computes, and those that are ready."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.accesses = accesses(graph)

    def kind(self, element: Element) -> str:
        """Return one of the four kinds; called once for each element of a walk. May raise if it cannot be computed."""
        raise NotImplementedError

    def operands(self, element: Element) -> Sequence[Access]:
        """Return the elements that a computed element reads."""
        return self.accesses.operands(element)


class Walk(Struct, frozen=True):
    """All elements on the way from some elements to those that are ready for a kernel; each with a flag: true if it is
    needed for every index.
    """

    computed: Mapping[Element, bool]
    loaded: Mapping[Element, bool]
    """Elements of kernel inputs."""
    cached: Mapping[Element, bool]
    """Elements of values that the kernel holds."""


def walk(view: View, starts: Iterable[Element]) -> Walk:
    """Follow elements down to those that are ready for the kernel. Each is visited once, or twice where the first visit
    is under a condition.
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
