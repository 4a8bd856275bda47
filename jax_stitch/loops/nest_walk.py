"""Is a nest of loops local to each row of what it carries? Decided exactly, by following every element that is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

from jax_stitch.analysis import Expr, const, copies, reads, var
from jax_stitch.analysis.binding import Binding, Factor, covers, index_of, inner, inner_sizes, position_in, rows_of
from jax_stitch.analysis.locality import row_index
from jax_stitch.analysis.maps import STEP, Index
from jax_stitch.analysis.spread import bind
from jax_stitch.analysis.support import is_free, reason_unsupported
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.nest import After, During, Level, Output, Stacked
from jax_stitch.loops.contraction import contracted, is_contraction
from jax_stitch.loops.nest import CARRY, RESULT, NotStitched, Opened

MAX_PLACES = 64
"""Elements of one carried value per row: they are registers."""

MAX_ELEMENTS = 8000
"""Elements computed per row in all: they are written out in full."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The loops whose results some elements need, and those that they are part of an iteration of."""

    results: set[int]
    slices: set[int]


def is_uniform(binding: Binding) -> bool:
    """Whether all rows have the same value."""
    return all(f.stride is None for dim in binding for f in dim)


def elements_of(binding: Binding, rows: int) -> tuple[Index, ...]:
    """The index of each of a value's places in a row."""
    row = row_index(rows)
    return tuple(index_of(binding, row, const(p)) for p in range(prod(inner_sizes(binding))))


def splits(opened: Opened, loops: Sequence[Level]) -> Iterator[tuple[int, dict[int, Binding]]]:
    """Ways to split what the loops carry into rows, the finest first: the number of rows and the bindings of all that
    covers them. Last, a single row.
    """
    graph = opened.graph
    leaves = ("parameter", CARRY, RESULT, STEP, "while", "conditional")
    candidates = {n.id for n in graph.nodes if n.op not in leaves and isinstance(n.type, TensorType)}
    candidates = {i for i in candidates if _passes(graph, graph[i])}
    seeds: list[tuple[int, int, Binding]] = []
    for i in _told_apart(loops):
        dims = graph[i].tensor.dims
        for along in _row_dims(len(dims)):
            seeds.append((prod(dims[d] for d in along), i, rows_of(dims, along)))
    tried: set[frozenset[tuple[int, Binding]]] = set()
    for rows, seed, binding in sorted(seeds, key=lambda s: -s[0]):
        if rows < 2:
            continue
        found = _spread(opened, loops, seed, binding, rows, candidates)
        key = frozenset((i, found[i]) for i in _told_apart(loops) if i in found)
        if key not in tried:
            tried.add(key)
            yield rows, found
    yield 1, {}


def _passes(graph: Graph, node: Node) -> bool:
    """Whether splits spread through a node."""
    if node.op == "dynamic-update-slice" or is_contraction(graph, node):
        return True
    return reason_unsupported(graph, node) is None


def _row_dims(rank: int) -> Iterator[tuple[int, ...]]:
    """The dimensions that rows may run along: any, up to three dimensions; else some neighbours."""
    if rank <= 3:
        for count in range(rank, 0, -1):
            yield from combinations(range(rank), count)
    else:
        yield from (tuple(range(a, b)) for a in range(rank) for b in range(rank, a, -1))


def _told_apart(loops: Sequence[Level]) -> list[int]:
    """What a split of the loops is looked for in: values carried and slices written."""
    return [i for level in loops for i in (*(c.parameter for c in level.carried), *(s.update for s in level.stacked))]


def _spread(
    opened: Opened, loops: Sequence[Level], seed: int, binding: Binding, rows: int, candidates: Collection[int]
) -> dict[int, Binding]:
    """The split spread from a seed through the graph, and along what loops carry."""
    graph = opened.graph
    found = bind(graph, seed, binding, rows, candidates)
    while True:
        new: dict[int, Binding] = {}
        for level in loops:
            for c in level.carried:
                same = (c.parameter, c.next, c.initial, c.result)
                known = next((found[i] for i in same if i in found), None)
                if known is not None:
                    new |= {i: known for i in same if i not in found and not is_free(graph[i])}
            for s in level.stacked:
                if s.update in found and s.result not in found:
                    new[s.result] = whole_binding(graph[s.result], s, found[s.update])
                elif s.result in found and s.update not in found:
                    new[s.update] = tuple(
                        () if not e.is_const else dim for e, dim in zip(s.starts, found[s.result], strict=True)
                    )
        if not new:
            return found
        for i, b in new.items():
            if i not in found:
                found |= {k: x for k, x in bind(graph, i, b, rows, candidates).items() if k not in found}
                found[i] = b


def whole_binding(node: Node, stack: Stacked, update: Binding) -> Binding:
    """The binding of a stacked array whose slices are bound as ``update``."""
    dims = node.tensor.dims
    return tuple(
        dim if e.is_const else (Factor(size),) for e, dim, size in zip(stack.starts, update, dims, strict=True)
    )


class Walker:
    """Follows elements of some loops and of nodes around them (``inside``) under one split."""

    def __init__(
        self,
        opened: Opened,
        loops: Sequence[Level],
        inside: Collection[int],
        outer: int,
        rows: int,
        bindings: Mapping[int, Binding],
    ) -> None:
        self.graph, self.loops, self.inside, self.rows, self.bindings = opened.graph, loops, inside, rows, bindings
        self._outer, self._row = outer, row_index(rows)
        carried = [c for level in loops for c in level.carried]
        self.carried = {i: self.binding(c.parameter) for c in carried for i in (c.parameter, c.result)}
        self.stacks = {s.result: s for level in loops for s in level.stacked}
        self.loop_of = {s.result: level.number for level in loops for s in level.stacked}
        self.loop_of |= {c.result: level.number for level in loops for c in level.carried}
        self.reached: set[tuple[int, Index]] = set()
        self._roots: list[tuple[int, Index]] = []
        self._slices: set[tuple[int, Index]] = set()
        self.inputs: set[int] = set()
        self.read_back: set[int] = set()

    def binding(self, i: int) -> Binding:
        """How a value is bound; one that does not cover the rows is the same for all."""
        return self.bindings.get(i) or tuple(inner(size) for size in self.graph[i].tensor.dims)

    def check_loops(self) -> None:
        """Follows everything an iteration needs. Raises ``NotStitched``."""
        for level in self.loops:
            for c in level.carried:
                places = self._places(c.parameter)
                self.follow(((c.next, index) for index in places), level.number)
                self.follow(((c.initial, index) for index in places), level.parent)
            for s in level.stacked:
                self.follow(((s.update, index) for index in self._places(s.update)), level.number)
            if level.condition is not None:
                places = self._places(level.condition)
                if len(places) != 1:
                    raise NotStitched("a loop whose condition is not one truth value per row")
                self.follow([(level.condition, places[0])], level.number)
        if len(self.reached) > MAX_ELEMENTS:
            raise NotStitched("loops whose bodies compute too many elements per row to be written out")

    def _places(self, i: int) -> tuple[Index, ...]:
        binding = self.binding(i)
        size = prod(inner_sizes(binding))
        if size > MAX_PLACES:
            raise NotStitched(f"a loop that carries {size} values per row, more than registers hold")
        if not (is_uniform(binding) or covers(binding, self.rows)):
            raise NotStitched("a loop whose carried values have no common rows")
        return elements_of(binding, self.rows)

    def check_text(self) -> None:
        """Raises ``NotStitched`` where writing out what has been followed takes too many statements: what is chosen by
        the index is written once for each choice.
        """
        written = copies.counts(self.graph, self._roots, self.reached, self._children)
        if written.total() > MAX_ELEMENTS or max(written.values(), default=0) > copies.MOST:
            raise NotStitched("loops whose bodies choose among too many elements per row to be written out")

    def _children(self, element: tuple[int, Index]) -> list[copies.Child]:
        i, index = element
        node = self.graph[i]
        if i in self.carried or (i < self._outer and i not in self.inside and i not in self.stacks):
            return []
        if i in self.stacks:
            place = slice_place(self.stacks[i], index) if element in self._slices else None
            return [] if place is None else [((self.stacks[i].update, place), None)]
        if node.op in ("constant", "iota", STEP):
            return []
        if node.op == "get-tuple-element" or is_contraction(self.graph, node):
            return [(e, None) for e in self._computed(node, index)]
        return copies.children(self.graph, element)

    def follow(self, elements: Iterable[tuple[int, Index]], loop: int | None) -> Needs:
        """Follows elements that are computed in each iteration of ``loop``, or outside all loops, to where they come
        from; returns which loops they need.

        Raises ``NotStitched`` where one is of another row, or is no element that a thread can compute.
        """
        waiting = list(elements)
        roots = tuple(waiting)
        needs = Needs(set(), set())
        around = self._around(loop)
        seen: set[tuple[int, Index]] = set()
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            i, index = here
            node = self.graph[i]
            if i in self.carried:
                position = position_in(self.carried[i], self._row, index)
                if position is None:
                    raise NotStitched(f"a loop in which rows need each other's {node.name or 'values'}")
                if node.op == RESULT:
                    needs.results.add(self.loop_of[i])
            elif i in self.stacks:
                waiting += self._stacked(node, index, needs, around)
            elif i < self._outer and i not in self.inside:
                if not is_free(node):
                    self.inputs.add(i)
            else:
                waiting += self._computed(node, index)
            if len(seen) > MAX_ELEMENTS:
                raise NotStitched("a loop whose body computes too many elements per row to be written out")
        self.reached |= seen
        self._roots += roots
        return needs

    def _around(self, loop: int | None) -> frozenset[int]:
        """A loop and those around it."""
        parents = {level.number: level.parent for level in self.loops}
        found: set[int] = set()
        while loop is not None:
            found.add(loop)
            loop = parents[loop]
        return frozenset(found)

    def _stacked(self, node: Node, index: Index, needs: Needs, around: Collection[int]) -> list[tuple[int, Index]]:
        """An element of a stacked output: of the slice of this iteration, where it is one of the loops ``around``, or
        read back from where the thread wrote it.
        """
        stack = self.stacks[node.id]
        place = slice_place(stack, index) if self.loop_of[node.id] in around else None
        if place is not None:
            self._slices.add((node.id, index))
            needs.slices.add(self.loop_of[node.id])
            return [(stack.update, place)]
        whole = whole_binding(node, stack, self.binding(stack.update))
        own = covers(whole, self.rows) and position_in(whole, self._row, index) is not None
        if not own:
            raise NotStitched(f"loops of which one needs other rows of {node.name or 'what the other wrote'}")
        needs.results.add(self.loop_of[node.id])
        self.read_back.add(node.id)
        return []

    def _computed(self, node: Node, index: Index) -> list[tuple[int, Index]]:
        graph = self.graph
        if node.op in ("constant", "iota", STEP):
            if node.op == "constant" and not is_free(node):
                raise NotStitched("a loop over a large constant")
            return []
        if node.op == "get-tuple-element" and graph[node.operands[0]].op == "reduce":
            return [(node.operands[0], index)]
        if is_contraction(graph, node):
            found = [e for step in contracted(graph, node, index) for e in step]
            return found + [(o, ()) for o in initials(node)]
        reason = None if node.op == "dynamic-update-slice" else reason_unsupported(graph, node)
        if reason is not None or node.op == "reduce":
            raise NotStitched(f"a loop with {reason or 'a long reduction'} in its body")
        found = []
        for read in reads(graph, node, index):
            found.append((node.operands[read.operand], read.index))
            found += [(node.operands[o], at) for _, o, at in read.starts]
        return found

    def output(self, i: int) -> Output | None:
        """How the rows can write a node of the outer graph, if they can."""
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
        """Tries each way in which a loop's counter can be part of the place inside the row."""
        sizes = inner_sizes(binding)
        places = prod(sizes)
        for level in self.loops:
            if level.parent is not None or not level.stacked or not level.trips:
                continue
            if places % level.trips or places // level.trips > MAX_PLACES:
                continue
            step = var(level.step, level.trips)
            for counter in (step, -step + (level.trips - 1)):
                for stride in _strides(sizes, level.trips):
                    rest = [p for p in range(places) if p // stride % level.trips == 0]
                    indices = tuple(index_of(binding, self._row, counter * stride + p) for p in rest)
                    if self._can(i, indices, level.number):
                        return During(i, indices, is_uniform(binding), level.number)
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
        """Whether a loop has ended wherever an iteration of ``loop`` ends: one before it, or inside it."""
        if other == loop:
            return False
        return loop in self._around(other) or other < loop


def _strides(sizes: Sequence[int], trips: int) -> Iterator[int]:
    """The strides at which a digit of ``trips`` values can stand in a place counted over ``sizes``."""
    stride = prod(sizes)
    found: list[int] = []
    for size in sizes:
        stride //= size
        if size % trips == 0:
            found += [stride * (size // trips), stride]
    return iter(dict.fromkeys(found or [1] * (trips == 1)))  # one place, of an array of one element


def slice_place(stack: Stacked, index: Index) -> Index | None:
    """Where in this iteration's slice an element of a stacked array is, if it is in it."""
    found: list[Expr] = []
    for start, i in zip(stack.starts, index, strict=True):
        if start.is_const:
            found.append(i - start)
        elif i == start:
            found.append(const(0))
        else:
            return None
    return tuple(found)


def initials(node: Node) -> tuple[int, ...]:
    """What a reduction starts from."""
    return node.operands[len(node.operands) // 2 :] if node.op == "reduce" else ()
