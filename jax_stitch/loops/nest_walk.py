"""Is a nest of loops local to each row of what it carries? Decided exactly, by following every element that is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct

from jax_stitch.analysis import copies
from jax_stitch.analysis.accesses import CACHED, COMPUTED, LOADED, Access, Element, View, accesses, walk
from jax_stitch.analysis.binding import (
    Binding,
    covers,
    elements_of,
    index_of,
    inner,
    inner_sizes,
    is_uniform,
    position_in,
)
from jax_stitch.analysis.contraction import is_contraction, written_out
from jax_stitch.analysis.maps import STEP, Index
from jax_stitch.analysis.patterns.nest import RESULT, After, During, NestedLoop, Output, slice_index
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.graph.model import Node
from jax_stitch.ir.indices import var
from jax_stitch.ir.indices.variables import row_index
from jax_stitch.ir.operations import HEAVY
from jax_stitch.loops.nest import NotStitched, Opened
from jax_stitch.loops.nest_splits import whole_binding

MAX_PLACES = 64
"""Elements of one carried value per row: they are registers."""

OF_HEAVY = 4
"""How many statements a function counts as in the text of a loop."""


class Needs(Struct, frozen=True):
    """The loops whose results some elements need, and those that they are part of an iteration of."""

    results: set[int]
    slices: set[int]


class Walker:
    """Follow elements of some loops and of nodes around them (``inside``) under one split.

    They are written out in full, in at most so many statements as ``most``.
    """

    def __init__(
        self,
        opened: Opened,
        loops: Sequence[NestedLoop],
        inside: Collection[int],
        outer: int,
        rows: int,
        bindings: Mapping[int, Binding],
        most: int,
    ) -> None:
        self.most = most
        self.graph, self.loops, self.inside, self.rows, self.bindings = opened.graph, loops, inside, rows, bindings
        self._outer, self.row = outer, row_index(rows)
        self._accesses = accesses(opened.graph)
        carried = [c for nested in loops for c in nested.carried]
        self.carried = {i: self.binding(c.parameter) for c in carried for i in (c.parameter, c.result)}
        self.stacks = {s.result: s for nested in loops for s in nested.stacked}
        self.loop_of = {s.result: nested.number for nested in loops for s in nested.stacked}
        self.loop_of |= {c.result: nested.number for nested in loops for c in nested.carried}
        self.reached: set[Element] = set()
        self._roots: list[Element] = []
        self.slices: set[Element] = set()
        self.inputs: set[int] = set()
        self.read_back: set[int] = set()
        self.computable: set[int] = set()

    def binding(self, i: int) -> Binding:
        """Return the binding of a value; one that does not cover the rows is the same for all."""
        return self.bindings.get(i) or tuple(inner(size) for size in self.graph[i].tensor.dims)

    def check_loops(self) -> None:
        """Follow everything an iteration needs. Raises ``NotStitched``."""
        for nested in self.loops:
            steps: list[Element] = []
            starts: list[Element] = []
            for c in nested.carried:
                places = self._places(c.parameter)
                steps += ((c.next, index) for index in places)
                starts += ((c.initial, index) for index in places)
            for s in nested.stacked:
                steps += ((s.update, index) for index in self._places(s.update))
            if nested.condition is not None:
                places = self._places(nested.condition)
                if len(places) != 1:
                    raise NotStitched("a loop whose condition is not one truth value per row")
                steps.append((nested.condition, places[0]))
            # All at once: what carried values share is followed once.
            self.follow(steps, nested.number)
            self.follow(starts, nested.parent)
        if sum(map(self.statements, self.reached)) > self.most:
            raise NotStitched("loops whose bodies compute too many elements per row to be written out")

    def statements(self, element: Element) -> int:
        """Return about how many statements compute an element."""
        return OF_HEAVY if self.graph[element[0]].op in HEAVY else 1

    def _places(self, i: int) -> tuple[Index, ...]:
        binding = self.binding(i)
        size = prod(inner_sizes(binding))
        if size > MAX_PLACES:
            raise NotStitched(f"a loop that carries {size} values per row, more than registers hold")
        if not (is_uniform(binding) or covers(binding, self.rows)):
            raise NotStitched("a loop whose carried values have no common rows")
        return elements_of(binding, self.rows)

    def check_text(self) -> None:
        """Raise ``NotStitched`` where writing out what has been followed takes too many statements: what is chosen by
        the index is written once for each choice.
        """
        written = copies.counts(self.graph, self._roots, self.reached, self._in_text)
        if written.total() > self.most or max(written.values(), default=0) > copies.MOST:
            raise NotStitched("loops whose bodies choose among too many elements per row to be written out")

    def _in_text(self, element: Element) -> Sequence[Access]:
        """Return what the text of an element that has been followed reads."""
        i, index = element
        if i in self.carried or self.is_outside(i):
            return ()
        if i in self.stacks:
            inside = slice_index(self.stacks[i], index) if element in self.slices else None
            return () if inside is None else (Access((self.stacks[i].update, inside), True),)
        return written_out(self._accesses, element)

    def is_outside(self, i: int) -> bool:
        """Return whether a value is computed before the kernel."""
        return i < self._outer and i not in self.inside and i not in self.stacks

    def follow(self, elements: Iterable[Element], loop: int | None) -> Needs:
        """Follow elements that are computed in each iteration of ``loop``, or outside all loops, to where they come
        from; returns which loops they need.

        Raises ``NotStitched`` where one is of another row, or is no element that a thread can compute.
        """
        roots = tuple(elements)
        view = _Iteration(self, self.around(loop))
        walked = walk(view, roots)
        self.reached.update(walked.computed, walked.loaded, walked.cached)
        self._roots += roots
        return view.needs

    def around(self, loop: int | None) -> frozenset[int]:
        """Return a loop and those around it."""
        parents = {nested.number: nested.parent for nested in self.loops}
        numbers: set[int] = set()
        while loop is not None:
            numbers.add(loop)
            loop = parents[loop]
        return frozenset(numbers)

    def output(self, i: int) -> Output | None:
        """Return how the rows can write a node of the outer graph, if they can."""
        binding = self.binding(i)
        if not (is_uniform(binding) or covers(binding, self.rows)):
            return None
        during = self._during(i, binding)
        # What iterations write in parts is written by none after the loop: it would be read back from itself.
        return during if during is not None or i in self.stacks else self._after(i, binding)

    def _after(self, i: int, binding: Binding) -> After | None:
        if prod(inner_sizes(binding)) > MAX_PLACES:
            return None
        indices = elements_of(binding, self.rows)
        return After(i, indices, is_uniform(binding)) if self._can(i, indices, None) else None

    def _during(self, i: int, binding: Binding) -> During | None:
        """Try each way in which a loop's counter can be part of the place inside the row."""
        sizes = inner_sizes(binding)
        places = prod(sizes)
        for nested in self.loops:
            if nested.parent is not None or not nested.stacked or not nested.trips:
                continue
            if places % nested.trips or places // nested.trips > MAX_PLACES:
                continue
            step = var(nested.step, nested.trips)
            for counter in (step, -step + (nested.trips - 1)):
                for stride in _strides(sizes, nested.trips):
                    rest = [p for p in range(places) if p // stride % nested.trips == 0]
                    indices = tuple(index_of(binding, self.row, counter * stride + p) for p in rest)
                    if self._can(i, indices, nested.number):
                        return During(i, indices, is_uniform(binding), nested.number)
        return None

    def _can(self, i: int, indices: Sequence[Index], loop: int | None) -> bool:
        before = set(self.read_back)
        try:
            needs = self.follow(((i, index) for index in indices), loop)
        except NotStitched:
            self.read_back = before
            return False
        if loop is None or (loop in needs.slices and all(self._ends_before(other, loop) for other in needs.results)):
            return True
        self.read_back = before
        return False

    def _ends_before(self, other: int, loop: int) -> bool:
        """Return whether a loop has ended wherever an iteration of ``loop`` ends: one before it, or inside it."""
        if other == loop:
            return False
        return loop in self.around(other) or other < loop


class _Iteration(View):
    """What a thread computes in an iteration of a loop, or outside all, and what it finds ready.

    ``around`` are that loop and those around it. What is needed of others is noted on the way.
    """

    def __init__(self, walker: Walker, around: Collection[int]) -> None:
        super().__init__(walker.graph)
        self.needs = Needs(set(), set())
        self._walker, self._around, self._count = walker, around, 0

    def kind(self, element: Element) -> str:
        self._count += self._walker.statements(element)
        if self._count > self._walker.most:
            raise NotStitched("a loop whose body computes too many elements per row to be written out")
        i, index = element
        walker, node = self._walker, self.graph[i]
        if i in walker.carried:
            if position_in(walker.carried[i], walker.row, index) is None:
                raise NotStitched(f"a loop in which rows need each other's {node.name or 'values'}")
            if node.op == RESULT:
                self.needs.results.add(walker.loop_of[i])
            return CACHED
        if i in walker.stacks:
            return self._stacked(node, index)
        if walker.is_outside(i):
            if not is_rematerializable(node):
                walker.inputs.add(i)
            return LOADED
        if i not in walker.computable:
            self._must_be_computable(node)
            walker.computable.add(i)
        return COMPUTED

    def _stacked(self, node: Node, index: Index) -> str:
        """Return an element of a stacked output: of the slice of this iteration, where it is one of the loops around,
        or read back from where the thread wrote it.
        """
        walker, stack = self._walker, self._walker.stacks[node.id]
        loop = walker.loop_of[node.id]
        if loop in self._around and slice_index(stack, index) is not None:
            walker.slices.add((node.id, index))
            self.needs.slices.add(loop)
            return COMPUTED
        whole = whole_binding(node, stack, walker.binding(stack.update))
        own = covers(whole, walker.rows) and position_in(whole, walker.row, index) is not None
        if not own:
            raise NotStitched(f"loops of which one needs other rows of {node.name or 'what the other wrote'}")
        self.needs.results.add(loop)
        walker.read_back.add(node.id)
        return CACHED

    def _must_be_computable(self, node: Node) -> None:
        graph = self.graph
        if node.op in ("constant", "iota", STEP):
            if node.op == "constant" and not is_rematerializable(node):
                raise NotStitched("a loop over a large constant")
            return
        if node.op == "get-tuple-element" and graph[node.operands[0]].op == "reduce":
            return
        if is_contraction(graph, node) or node.op == "dynamic-update-slice":
            return
        reason = reason_unsupported(graph, node)
        if reason is not None or node.op == "reduce":
            raise NotStitched(f"a loop with {reason or 'a long reduction'} in its body")

    def operands(self, element: Element) -> Sequence[Access]:
        i, index = element
        stack = self._walker.stacks.get(i)
        if stack is None:
            return written_out(self.accesses, element)
        inside = slice_index(stack, index)
        assert inside is not None
        return (Access((stack.update, inside), True),)


def _strides(sizes: Sequence[int], trips: int) -> Iterator[int]:
    """Return the strides at which a digit of ``trips`` values can stand in a place counted over ``sizes``."""
    stride = prod(sizes)
    strides: list[int] = []
    for size in sizes:
        stride //= size
        if size % trips == 0:
            strides += [stride * (size // trips), stride]
    return iter(dict.fromkeys(strides or [1] * (trips == 1)))  # one place, of an array of one element
