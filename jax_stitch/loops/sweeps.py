"""The sweeps of a team's iteration: what its threads compute between two barriers, and how they share it out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod

from msgspec import Struct

from jax_stitch.analysis import Expr, const, delinearize, linearize, var
from jax_stitch.analysis.accesses import accesses
from jax_stitch.analysis.binding import Binding, index_of, inner, inner_sizes
from jax_stitch.analysis.locality import PLACE, RUN, row_index
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.terms import terms_of
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.pieces import combs, joined
from jax_stitch.loops.scatter import window_starts
from jax_stitch.loops.team import contraction, elements_at, inner_reads, reach, step_of
from jax_stitch.util.values import replace


class Target(Enum):
    """Where a sweep writes a value."""

    INTERMEDIATE = "what the team caches during an iteration"
    CARRIED = "the value of the next iteration"
    STACKED = "this iteration's slice of an output"
    ADDED = "added to what the team caches, at places that are data"


_CACHED = Target.INTERMEDIATE, Target.ADDED
_FREE = {Target.INTERMEDIATE, Target.STACKED}
"""What may be written before or after other values of the same sweep are computed."""

MOST_WRITES = 32
"""Values that one sweep writes, where it can be divided: compilers take longer than linearly for its body."""


class Write(Struct, frozen=True):
    """A value that a sweep computes at each place of its domain, and where to.

    ``slot`` is the cached node, or the number of the carried or stacked value; of a piece of it ``shift`` is where that
    starts, and ``strides`` how far apart its elements lie, where they are no neighbours. To some pieces zero is
    ``added``, which makes one of a zero below zero.
    """

    node: int
    binding: Binding
    target: Target
    slot: int
    shift: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    added: bool = False

    def whole_index(self, index: Index) -> Index:
        """The index that an element of a piece has in the whole."""
        if not self.shift:
            return index
        strides = self.strides or (1,) * len(index)
        return tuple(i * step + start for i, step, start in zip(index, strides, self.shift, strict=True))

    @property
    def sizes(self) -> tuple[int, ...]:
        return inner_sizes(self.binding)


class Sharing(Struct, frozen=True):
    """How the places of a sweep are shared out: neighbouring threads along the factor ``lane`` of the domain, ``tile``
    places of the factor ``tiled`` and ``wide`` of the factor ``lane`` by one thread, and ``split`` threads to each
    reduction. A product in blocks (``blocks``) says how many neighbouring places are a ``chunk``. On a CPU helpers may
    do some of the ``pieces`` of a divided sweep.
    """

    lane: int = -1
    tiled: int = -1
    tile: int = 1
    split: int = 1
    wide: int = 1
    chunk: int = 0
    pieces: int = 1

    @property
    def sums(self) -> int:
        """Places of one thread."""
        return self.tile * self.wide


class Sweep(Struct, frozen=True):
    """One pass of the team over a domain of ``sizes`` places: its reductions and products (``reduces``), then what is
    computed from them and from earlier sweeps' values at the same place.
    """

    sizes: tuple[int, ...]
    reduces: tuple[int, ...]
    writes: tuple[Write, ...]
    sharing: Sharing = Sharing()
    inner: int | None = None
    """The loop in the body that this is, whole."""

    @property
    def adds(self) -> bool:
        """Whether several places may add to one."""
        return any(w.target is Target.ADDED for w in self.writes)

    @property
    def lanes(self) -> int:
        """Places that neighbouring threads have."""
        return self.sizes[self.sharing.lane] // self.sharing.wide if self.sizes else 1

    @property
    def runs(self) -> int:
        """How often ``lanes`` places are gone through."""
        return prod(self.sizes) // self.lanes // self.sharing.sums

    def places(self) -> list[Expr]:
        """The places in the domain of run ``run`` and lane ``j``: those of the tile, by ``wide`` times."""
        if not self.sizes:
            return [const(0)]
        lane, tiled, tile = self.sharing.lane % len(self.sizes), self.sharing.tiled, self.sharing.tile
        others = [d for d in range(len(self.sizes)) if d != lane]
        counts = [self.sizes[d] // (tile if d == tiled else 1) for d in others]
        digits = dict(zip(others, delinearize(var(RUN, prod(counts)), counts), strict=True))
        digits[lane] = var(PLACE, self.lanes)
        points = []
        for u, v in product(range(tile), range(self.sharing.wide)):
            at = {d: digit * tile + u if d == tiled and tile > 1 else digit for d, digit in digits.items()}
            at[lane] = digits[lane] + v * self.lanes
            points.append(linearize([at[d] for d in range(len(self.sizes))], self.sizes))
        return points


BarrierGroup = tuple[Sweep, ...]
"""Sweeps with no barrier between them."""


def barrier_groups(loop: TeamLoop) -> tuple[BarrierGroup, ...]:
    """The sweeps of an iteration in order, each value as early as what it is computed from allows."""
    found, key = accesses(loop.body).found, ("sweeps", loop.inside)
    if key not in found:
        found[key] = _Planner(loop).groups()
    groups: tuple[BarrierGroup, ...] = found[key]
    return groups


_Key = tuple[int, tuple[int, ...], str | int]
"""Of a sweep: the number of its group, its domain, and whether it reduces, adds, or does each place by itself; or which
loop it is."""


def _sweep_of(key: _Key, reduces: Iterable[int], writes: Iterable[Write]) -> Sweep:
    inner = key[2] if isinstance(key[2], int) else None
    return Sweep(key[1], tuple(reduces), tuple(writes), inner=inner)


class _Planner:
    def __init__(self, loop: TeamLoop):
        self._loop = loop
        self._cached = loop.cached
        self._group: dict[int, int] = {c.parameter: 0 for c in loop.carried}
        self._sweep_of: dict[int, _Key] = {}
        self._sweeps: dict[_Key, tuple[list[int], list[Write]]] = {}

    def groups(self) -> tuple[BarrierGroup, ...]:
        loop, body = self._loop, self._loop.body
        made_by_inner = loop.made_by_inner
        for i in sorted(loop.intermediates):
            made = contraction(body, i)
            if i in made_by_inner:
                self._inner(i, made_by_inner[i])
            elif body[i].op == "scatter":
                self._scatter(i)
            elif made is None:
                self._add(Write(i, loop.intermediates[i], Target.INTERMEDIATE, i))
            else:
                self._reduce(i, made.id)
        for k, s in enumerate(loop.stacked):
            self._add(Write(s.update, s.binding, Target.STACKED, k))
        for k, c in enumerate(loop.carried):
            if c.next != c.parameter:
                self._add(Write(c.next, c.binding, Target.CARRIED, k))
        count = max((group for group, _, _ in self._sweeps), default=0)
        groups: list[list[Sweep]] = []
        for here in range(1, count + 1):
            at = [(key, made) for key, made in self._sweeps.items() if key[0] == here]
            parts = [p for key, made in at for p in self._distributed(_sweep_of(key, *made))]
            waits = max((wait for wait, _ in parts), default=0)
            groups += ([sweep for wait, sweep in parts if wait == turn] for turn in range(waits + 1))
        return self._drop_unread([group for group in groups if group])

    def _distributed(self, sweep: Sweep) -> list[tuple[int, Sweep]]:
        """Return a sweep of many results as several (loop distribution), each with how many of them it waits for."""
        if sweep.inner is not None or len(sweep.writes) <= MOST_WRITES or not {w.target for w in sweep.writes} <= _FREE:
            return [(0, sweep)]
        body, intermediates = self._loop.body, self._loop.intermediates
        of = {i: r for r in sweep.reduces for i in results_in(body, r, intermediates).values()}
        parts: list[tuple[int, list[Write]]] = []
        home: dict[int, int] = {}
        for w in sweep.writes:
            is_result = w.target is Target.INTERMEDIATE and w.slot in of and w.node == w.slot
            read = (
                {i for i in results_in(body, of[w.slot], intermediates).values() if i in home}
                if is_result
                else {i for i, _ in sweep_reads(self._loop, replace(sweep, reduces=(), writes=(w,)), self._cached)}
            )
            before = {home[i] for i in read if i in home}
            wait = 0 if not before or is_result else 1 + max(parts[k][0] for k in before)
            at = next(iter(before)) if len(before) == 1 else -1
            if at < 0 or (len(parts[at][1]) >= MOST_WRITES and not is_result):
                open_parts = (k for k, (depth, made) in enumerate(parts) if depth == wait and len(made) < MOST_WRITES)
                at = next(open_parts, len(parts))
            if at == len(parts):
                parts.append((wait, []))
            parts[at][1].append(w)
            if w.target is Target.INTERMEDIATE:
                home[w.slot] = at
        results = [{of[w.slot] for w in writes if w.slot in of and w.node == w.slot} for _, writes in parts]
        reduces = [tuple(r for r in sweep.reduces if r in made) for made in results]
        return [
            (wait, replace(sweep, reduces=own, writes=tuple(writes)))
            for (wait, writes), own in zip(parts, reduces, strict=True)
        ]

    def _drop_unread(self, groups: Sequence[Sequence[Sweep]]) -> tuple[BarrierGroup, ...]:
        """Return the groups less what would be cached for nobody: results that only their own sweep goes on with."""
        sweeps = [sweep for group in groups for sweep in group]
        readers: dict[int, set[int]] = {}
        for n, sweep in enumerate(sweeps):
            for i, _ in sweep_reads(self._loop, sweep, self._cached):
                readers.setdefault(i, set()).add(n)
        kept = []
        for n, sweep in enumerate(sweeps):
            writes = (
                w for w in sweep.writes if w.target is not Target.INTERMEDIATE or readers.get(w.slot, set()) - {n}
            )
            kept.append(replace(sweep, writes=tuple(writes)))
        rest = iter(kept)
        return tuple(tuple(next(rest) for _ in group) for group in groups)

    def _sweep(self, key: _Key) -> tuple[list[int], list[Write]]:
        return self._sweeps.setdefault(key, ([], []))

    def _inner(self, i: int, node: int) -> None:
        """One of the values that a loop leaves, which has a sweep for itself."""
        read = {o for o in inner_reads(self._loop.inner[node], self._loop.body) if o in self._cached}
        self._group[i] = 1 + max((self._group[o] for o in read), default=0)
        write = Write(i, self._loop.intermediates[i], Target.INTERMEDIATE, i)
        self._sweep((self._group[i], (), node))[1].append(write)

    def _reduce(self, i: int, made: int) -> None:
        loop, body = self._loop, self._loop.body
        starts = terms_of(body, body[made], elements_at(loop, loop.intermediates[i]), step_of(body, body[made]))
        reached = reach(body, [e for e in starts if e[0] not in self._cached], self._cached, loop.arrays).cached
        read = {o for o, _ in reached} | {o for o, _ in starts if o in self._cached}
        self._group[i] = 1 + max((self._group[o] for o in read), default=0)
        key = self._sweep_of[i] = self._group[i], inner_sizes(loop.intermediates[i]), "reduces"
        reduces, writes = self._sweep(key)
        if made not in reduces:
            reduces.append(made)
        writes.append(Write(i, loop.intermediates[i], Target.INTERMEDIATE, i))

    def _scatter(self, i: int) -> None:
        """What a scatter adds to, then what it adds."""
        loop, body = self._loop, self._loop.body
        start, _, updates = body[i].operands
        self._add(Write(start, loop.intermediates[i], Target.INTERMEDIATE, i))
        self._sweep_of.pop(i, None)  # Complete only when all is added.
        write = Write(updates, tuple(inner(n) for n in body[updates].tensor.dims), Target.ADDED, i)
        read = {o for o, _ in _added_reads(loop, write, self._cached)} - {i}
        self._group[i] = 1 + max((self._group[o] for o in (*read, i)), default=0)
        self._sweep((self._group[i], write.sizes, "adds"))[1].append(write)

    def _add(self, write: Write) -> None:
        """Puts a value into the sweep that makes what it reads, where it reads only its own place of it; else after
        it.
        """
        pieces = list(self._pieces(write)) if write.node not in self._group else []
        for piece in pieces:
            self._add(piece)
        if pieces:
            return
        known = write.node in self._group
        if known:
            elements = {(write.node, elements_at(self._loop, write.binding))}
        else:
            start = (write.node, elements_at(self._loop, write.binding))
            elements = set(reach(self._loop.body, [start], self._cached, self._loop.arrays).cached)
        last = max((self._group[o] for o, _ in elements), default=0)
        latest = [(o, at) for o, at in elements if self._group[o] == last]
        homes = {self._sweep_of.get(o) for o, _ in latest} if last else {None}
        home = next(iter(homes)) if len(homes) == 1 else None
        own = home is not None and home[1] == write.sizes and all(self._is_own(o, at) for o, at in latest)
        asks = write.node in self._loop.apart and not known
        key = home if own and home is not None and not asks else (last + 1, write.sizes, "asks" if asks else "each")
        if write.target is Target.INTERMEDIATE:
            self._group[write.slot] = max(key[0], self._group.get(write.slot, 0))
            if not write.shift and not asks:
                self._sweep_of[write.slot] = key
        self._sweep(key)[1].append(write)

    def _is_own(self, i: int, index: Index) -> bool:
        """Whether an element is the one at the place of the thread that computes it."""
        return index == elements_at(self._loop, self._cached[i])

    def _pieces(self, write: Write) -> Iterable[Write]:
        """The pieces that a value is made of, each written to its own places."""
        body, node = self._loop.body, self._loop.body[write.node]
        made = combs(body, node) if write.node in self._loop.intermediates else None
        if made is not None and len(made) > 2 and not self._loop.in_pieces:
            made = None
        pieces = made or (joined(body, node) if node.op == "concatenate" else ())
        for p in pieces:
            if any(f.stride is not None for f in write.binding[p.axis]):
                return
            size, rank = body[p.node].tensor.dims[p.axis], len(write.binding)
            binding = tuple(inner(size) if d == p.axis else dim for d, dim in enumerate(write.binding))
            piece = replace(write, shift=write.shift or (0,) * rank, strides=write.strides or (1,) * rank)
            at = tuple(const(p.start if d == p.axis else 0) for d in range(rank))
            shift = tuple(i.offset for i in piece.whole_index(at))
            strides = tuple(step * (p.step if d == p.axis else 1) for d, step in enumerate(piece.strides))
            added = write.added or made is not None
            yield replace(piece, node=p.node, binding=binding, shift=shift, strides=strides, added=added)


def reads_by_group(loop: TeamLoop, groups: Iterable[BarrierGroup]) -> dict[int, list[tuple[int, Sweep, bool]]]:
    """For each carried value's parameter where it is read: the group's number, the sweep, and whether only at the
    place of the reader.
    """
    reads: dict[int, list[tuple[int, Sweep, bool]]] = {c.parameter: [] for c in loop.carried}
    groups = tuple(groups)
    written = {w.slot for group in groups for sweep in group for w in sweep.writes if w.target in _CACHED}
    # What is cached for nobody is computed where it is read: its sweep reads what it is made of.
    gone = {i for i in loop.intermediates if i not in written and contraction(loop.body, i) is None}
    cached = {i: binding for i, binding in loop.cached.items() if i not in gone}
    for number, group in enumerate(groups):
        for sweep in group:
            for o, index in sweep_reads(loop, sweep, cached):
                if o in reads:
                    own = index == elements_at(loop, cached[o]) and inner_sizes(cached[o]) == sweep.sizes
                    reads[o].append((number, sweep, own))
    return reads


def sweep_reads(loop: TeamLoop, sweep: Sweep, cached: Collection[int]) -> set[tuple[int, Index]]:
    """The cached elements that a sweep reads, at place ``j`` of its domain."""
    body = loop.body
    elements: set[tuple[int, Index]] = set()
    if sweep.inner is not None:
        reads = (o for o in inner_reads(loop.inner[sweep.inner], body) if o in cached)
        return {(o, tuple(var(f"any{d}", size) for d, size in enumerate(body[o].tensor.dims))) for o in reads}
    for r in sweep.reduces:
        for start in reduce_terms(loop, r):
            elements.update([start] if start[0] in cached else reach(body, [start], cached, loop.arrays).cached)
    for w in sweep.writes:
        start = (w.node, elements_at(loop, w.binding))
        if w.target is Target.INTERMEDIATE and contraction(body, w.node) is not None and w.node == w.slot:
            continue
        if w.target is Target.ADDED:
            elements |= _added_reads(loop, w, cached)
        elif w.node in cached and not (w.target is Target.INTERMEDIATE and w.node == w.slot):
            elements.add(start)
        else:
            elements.update(reach(body, [start], cached, loop.arrays).cached)
    return elements


def _added_reads(loop: TeamLoop, write: Write, cached: Collection[int]) -> set[tuple[int, Index]]:
    """The cached elements that an update of a scatter reads: for its value, and for where it belongs."""
    index = elements_at(loop, write.binding)
    starts = [(write.node, index), *window_starts(loop.body[write.slot], index).values()]
    elements = {e for e in starts if e[0] in cached}
    return elements | reach(loop.body, [e for e in starts if e[0] not in cached], cached, loop.arrays).cached.keys()


def reduce_terms(loop: TeamLoop, reduce: int) -> list[tuple[int, Index]]:
    """The operand elements of a reduction or product at place ``j`` of its domain and step ``q``."""
    node = loop.body[reduce]
    return terms_of(loop.body, node, elements_at(loop, binding_of(loop, reduce)), step_of(loop.body, node))


def binding_of(loop: TeamLoop, reduce: int) -> Binding:
    """The binding of the results of a reduction or product."""
    if reduce in loop.intermediates:
        return loop.intermediates[reduce]
    return next(loop.intermediates[u] for u in loop.body.users[reduce] if u in loop.intermediates)


def results_in(body: Graph, reduce: int, intermediates: Mapping[int, Binding]) -> dict[int, int]:
    """The intermediates that a reduction or product makes, by the number of its result."""
    if isinstance(body[reduce].type, TensorType):
        return {0: reduce}
    return {body[u].attributes["index"]: u for u in body.users[reduce] if u in intermediates}


def index_at(loop: TeamLoop, binding: Binding, place: Expr) -> Index:
    """The index of a value's element at a place of its domain."""
    return index_of(binding, row_index(loop.rows), place)
