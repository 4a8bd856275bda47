"""The order of a team's sweeps: each value as early as what it is computed from allows, in few sweeps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from jax_stitch.analysis.binding import inner, inner_sizes
from jax_stitch.analysis.contraction import contraction, step_of
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.sweeps import BarrierGroup, Sweep, Target, Write, elements_at, results_in
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.terms import terms_of
from jax_stitch.ir.indices import const
from jax_stitch.loops.teams.pieces import combs, joined
from jax_stitch.loops.teams.placed_rows import in_turn, made_from
from jax_stitch.loops.teams.sweeps import added_reads, placed_reads, sweep_reads
from jax_stitch.loops.teams.team import inner_reads, needed, reach
from jax_stitch.util.values import replace

_FREE = {Target.INTERMEDIATE, Target.STACKED}
"""Writes that may come before or after the other values of their sweep."""

MOST_WRITES = 32
"""Values that one sweep writes, where it can be divided: compilers take longer than linearly for its body."""


def barrier_groups(loop: TeamLoop) -> tuple[BarrierGroup, ...]:
    """Return the sweeps of an iteration in order, each value as early as what it is computed from allows."""
    return _groups.get(loop.body, loop.inside, lambda: _Planner(loop).groups())


_groups: Results[Hashable, tuple[BarrierGroup, ...]] = Results()


_Key = tuple[int, tuple[int, ...], str | int]
"""The key of a sweep: the number of its group, its domain, and whether it reduces, adds, or does each place by itself;
or which loop it is."""


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
        self._first = 0
        """The last group that the loop's guard needs: all others come after it."""

    def groups(self) -> tuple[BarrierGroup, ...]:
        loop, body = self._loop, self._loop.body
        read = {i: self._readers(i) for i in loop.placed}
        ordered = list(in_turn(body, {*loop.intermediates, *loop.placed}, read))
        first = set() if loop.guard is None else needed(body, [loop.guard])
        for i in (i for i in ordered if i in first):
            self._make(i, read)
        if loop.guard is not None:
            self._first = self._group[loop.guard]
        for i in (i for i in ordered if i not in first):
            self._make(i, read)
        for k, s in enumerate(loop.stacked):
            self._add(Write(s.update, s.binding, Target.STACKED, k))
        for k, c in enumerate(loop.carried):
            if c.next != c.parameter and not c.placed:
                self._add(Write(c.next, c.binding, Target.CARRIED, k))
        count = max((group for group, _, _ in self._sweeps), default=0)
        groups: list[list[Sweep]] = []
        for here in range(1, count + 1):
            at = [(key, made) for key, made in self._sweeps.items() if key[0] == here]
            parts = [p for key, made in at for p in self._distributed(_sweep_of(key, *made))]
            waits = max((wait for wait, _ in parts), default=0)
            groups += ([sweep for wait, sweep in parts if wait == turn] for turn in range(waits + 1))
        return self._drop_unread([group for group in groups if group])

    def _make(self, i: int, read: Mapping[int, Sequence[int]]) -> None:
        """Plan one of the values that an iteration makes before it ends."""
        loop, made = self._loop, contraction(self._loop.body, i)
        if i in loop.placed:
            self._place(i, read[i])
        elif i in loop.made_by_inner:
            self._inner(i, loop.made_by_inner[i])
        elif loop.body[i].op == "scatter":
            self._scatter(i)
        elif made is None:
            self._add(Write(i, loop.intermediates[i], Target.INTERMEDIATE, i))
        else:
            self._reduce(i, made.id)

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
        if self._loop.guard is not None:
            readers.setdefault(self._loop.guard, set()).add(-1)
        kept = []
        for n, sweep in enumerate(sweeps):
            writes = (
                w for w in sweep.writes if w.target is not Target.INTERMEDIATE or readers.get(w.slot, set()) - {n}
            )
            kept.append(replace(sweep, writes=tuple(writes)))
        rest = iter(kept)
        return tuple(tuple(next(rest) for _ in group) for group in groups)

    def _after(self, read: Iterable[int]) -> int:
        """Return the group of what is computed from some values."""
        return 1 + max((self._first, *(self._group[o] for o in read)))

    def _sweep(self, key: _Key) -> tuple[list[int], list[Write]]:
        return self._sweeps.setdefault(key, ([], []))

    def _inner(self, i: int, node: int) -> None:
        """Plan one of the values that a loop leaves, which has a sweep for itself."""
        read = {o for o in inner_reads(self._loop.inner[node], self._loop.body) if o in self._cached}
        self._group[i] = self._after(read)
        write = Write(i, self._loop.intermediates[i], Target.INTERMEDIATE, i)
        self._sweep((self._group[i], (), node))[1].append(write)

    def _reduce(self, i: int, made: int) -> None:
        loop, body = self._loop, self._loop.body
        starts = terms_of(body, body[made], elements_at(loop, loop.intermediates[i]), step_of(body, body[made]))
        reached = reach(body, [e for e in starts if e[0] not in self._cached], self._cached, loop.arrays).cached
        read = {o for o, _ in reached} | {o for o, _ in starts if o in self._cached}
        self._group[i] = self._after(read)
        key = self._sweep_of[i] = self._group[i], inner_sizes(loop.intermediates[i]), "reduces"
        reduces, writes = self._sweep(key)
        if made not in reduces:
            reduces.append(made)
        writes.append(Write(i, loop.intermediates[i], Target.INTERMEDIATE, i))

    def _scatter(self, i: int) -> None:
        """Plan what a scatter adds to, then what it adds."""
        loop, body = self._loop, self._loop.body
        start, _, updates = body[i].operands
        self._add(Write(start, loop.intermediates[i], Target.INTERMEDIATE, i))
        self._sweep_of.pop(i, None)  # Complete only when all is added.
        write = Write(updates, tuple(inner(n) for n in body[updates].tensor.dims), Target.ADDED, i)
        read = {o for o, _ in added_reads(loop, write, self._cached)} - {i}
        self._group[i] = self._after((*read, i))
        self._sweep((self._group[i], write.sizes, "adds"))[1].append(write)

    def _readers(self, update: int) -> list[int]:
        """Return what reads the elements that an update in place overwrites."""
        body = self._loop.body
        made = made_from(body, body[update].operands[0], update) or ()
        return [i for i in made if i in self._loop.intermediates]

    def _place(self, node: int, readers: Sequence[int]) -> None:
        """Put an update in place after all that reads what it overwrites, and after the update before it."""
        carried, placed = self._loop.placed[node]
        write = Write(placed.update, placed.binding, Target.PLACED, node)
        read = {*readers, *(o for o, _ in placed_reads(self._loop, write, self._cached))}
        self._group[node] = self._after({*read, self._loop.body[node].operands[0]})
        self._sweep((self._group[node], write.sizes, f"places {carried}"))[1].append(write)

    def _add(self, write: Write) -> None:
        """Put a value into the sweep that makes what it reads, where it reads only its own place of it; else after
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
        last = max((self._first, *(self._group[o] for o, _ in elements)))
        latest = [(o, at) for o, at in elements if self._group[o] == last]
        homes = {self._sweep_of.get(o) for o, _ in latest} if last > self._first else {None}
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
        """Return whether an element is the one at the place of the thread that computes it."""
        return index == elements_at(self._loop, self._cached[i])

    def _pieces(self, write: Write) -> Iterable[Write]:
        """Return the pieces that a value is made of, each written to its own places."""
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
