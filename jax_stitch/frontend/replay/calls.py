"""Launches joined into calls: one call runs several kernels in turn, with what they hand to each other in between.

On a CPU a call costs as much as moving 50 KB, several times that where XLA hands the program's operations to a pool of
threads. A small kernel takes less. So small kernels with no other operation between them share a call.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from jax_stitch.graph.model import Graph
from jax_stitch.graph.opcodes import TAKES_NO_TIME, has_effect

from .launched import Launch, LaunchedGraph
from .order import order
from .stitched import Segment, StitchedGraph

_NAMED = 3
"""Launches of a call, besides the first, that its name says."""


class Call(Struct, frozen=True, eq=False):
    """Launches that one call runs. Buffers are numbered: the inputs, then the outputs; -1 - n is temporary n."""

    launches: tuple[Launch, ...]
    levels: tuple[int, ...]
    """Of each launch: it reads only what those of lower levels have written."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    """For each launch, the buffers of its inputs, then of its outputs."""
    temporaries: tuple[int, ...] = ()
    """Values that only launches of this call read, each the first in its memory."""
    aliases: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """By number of an input, the output that is written over it."""
    after: tuple[int, ...] = ()
    """Values that it does not read and yet waits for."""

    @property
    def scope(self) -> str:
        """Return the named scope that its operation gets in JAX: that of the first launch, with the names of the next
        ones.
        """
        first, *others = (launch.scope for launch in self.launches)
        names = [scope.rpartition("/")[2] for scope in others[:_NAMED]]
        more = len(others) - len(names)
        return "+".join([first, *names, *([f"{more}_more"] if more else [])])


@dataclass(frozen=True)
class Joining:
    """What decides which launches share a call."""

    is_small: Callable[[Launch], bool]
    aliases: Callable[[Launch], Iterable[tuple[int, int]]]
    """Of a launch's kernel: the numbers of an input and of the output that is written over it."""
    phases: Callable[[Launch], int]
    """How many levels a launch takes."""
    parameters_are_apart: bool = False
    """Whether no two of the program's parameters are the same array."""


Runner = Callable[[Graph, Call, Sequence[Any]], Sequence[Any]]
"""Runs a call in a graph on its inputs, arrays or tracers, and returns its outputs. Behind the inputs are the values
that it only waits for."""


def in_calls(launched: LaunchedGraph, joining: Joining, run: Runner) -> StitchedGraph:
    """Return the graph with its launches joined into calls, and ``run`` to run them."""
    return _in_calls(launched, joining, run, joining.parameters_are_apart)


def _in_calls(launched: LaunchedGraph, joining: Joining, run: Runner, are_apart: bool) -> StitchedGraph:
    graph = launched.graph

    def segment(call: Call) -> Segment:
        # What one launch computes again, another may read: that is made by XLA, before both.
        nodes = frozenset[int]().union(*(launch.nodes for launch in call.launches)) - set(call.inputs)
        one = Launch(nodes, call.inputs, call.outputs, call.launches[0].kernel, call.scope, None, call.after)
        return one.segment(lambda arrays: run(graph, call, arrays))

    children = {key: _in_calls(child, joining, run, False) for key, child in launched.children.items()}
    return StitchedGraph(graph, tuple(map(segment, calls_of(launched, joining, are_apart))), children)


def calls_of(launched: LaunchedGraph, joining: Joining, are_apart: bool = False) -> list[Call]:
    """Return the calls that run a graph's launches, those of graphs that it calls not among them. ``are_apart``: no two
    of its parameters are the same array."""
    values = _Values(launched, are_apart)
    alone = {k for k, launch in enumerate(launched.launches) if not joining.is_small(launch)}
    while True:
        groups = [_Group(values, members, joining) for members in values.groups(alone)]
        demanded = values.demanded(groups)
        # One that writes over what another of its call may read later, or what others read, has a call of its own.
        late = {k for group in groups for k in group.conflicts(demanded)}
        if not late:
            return [group.call(demanded) for group in groups]
        alone |= late


class _Values:
    """Where a graph's values are made, and what runs in it."""

    def __init__(self, launched: LaunchedGraph, are_apart: bool):
        self.graph, self.launches = launched.graph, launched.launches
        self._are_apart = are_apart
        self.maker = {o: k for k, launch in enumerate(self.launches) for o in launch.outputs}
        segments = [launch.segment(_nobody) for launch in self.launches]
        number = {id(segment): k for k, segment in enumerate(segments)}
        steps = order(StitchedGraph(self.graph, tuple(segments)))
        self.steps = [step if isinstance(step, int) else number[id(step)] - len(segments) for step in steps]
        """In order: nodes by id, launches by their number less how many there are."""

    def launch_of(self, step: int) -> int | None:
        return step + len(self.launches) if step < 0 else None

    def root(self, i: int) -> int:
        """Return the value in whose memory a value is."""
        while i not in self.maker and self.graph[i].op == "reshape":
            i = self.graph[i].operands[0]
        return i

    def may_be_one(self, a: int, b: int) -> bool:
        """Return whether XLA could find that two values are equal, and make one array of them."""
        if a == b:
            return True
        if self.graph[a].type != self.graph[b].type:
            return False
        given = [self.graph[i].op == "parameter" for i in (a, b)]
        if all(given):
            return not self._are_apart
        return not all(is_given or i in self.maker for is_given, i in zip(given, (a, b), strict=True))

    def groups(self, alone: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the launches that run in sets of which none waits for itself: those of ``alone`` by themselves, others
        with all that wait for the same of these and of other operations. (With those that wait for others, they would
        wait for these as well.)
        """
        apart = set(alone)
        waits: dict[int, int] = {}
        """By value, what has to be done before: the bits of a number."""
        groups: dict[int, list[int]] = defaultdict(list)
        single: list[tuple[int, ...]] = []
        for number, step in enumerate(self.steps):
            k = self.launch_of(step)
            before = functools.reduce(operator.or_, (waits.get(self.root(i), 0) for i in self._reads(step)), 0)
            if k is None:
                waits[step] = before | (self.graph[step].op not in TAKES_NO_TIME) << number
                continue
            if k in apart:
                single.append((k,))
            else:
                groups[before].append(k)
            waits.update(dict.fromkeys(self.launches[k].outputs, before | (k in apart) << number))
        return [*single, *map(tuple, groups.values())]

    def _reads(self, step: int) -> Sequence[int]:
        k = self.launch_of(step)
        if k is None:
            return self.graph[step].operands
        return self.launches[k].waits_for

    def demanded(self, groups: Sequence[_Group]) -> set[int]:
        """Return the values that somebody reads who is not of the group that makes them: operations that run, other
        groups, and whoever gets the results."""
        group_of = {k: g for g, group in enumerate(groups) for k in group.members}
        wanted, seen = set(self.graph.results), set[int]()
        waiting = [*self.graph.results, *(s for s in self.steps if s >= 0 and has_effect(self.graph[s]))]
        while waiting:
            i = waiting.pop()
            if i in seen:
                continue
            seen.add(i)
            if i in self.maker:
                read = groups[group_of[self.maker[i]]].read
            else:
                read = self.graph[i].operands
            wanted.update(read)
            waiting += read
        return wanted


class _Group:
    """Launches that are to share a call."""

    def __init__(self, values: _Values, members: Sequence[int], joining: Joining):
        self.members, self._values, self._joining = members, values, joining
        self._launches = {k: values.launches[k] for k in members}
        self._own = {o for launch in self._launches.values() for o in launch.outputs}
        self._over = {k: tuple(self._written_over(k)) for k in members}
        self._readers: dict[int, set[int]] = defaultdict(set)
        """The launches that read each value."""
        for k, launch in self._launches.items():
            for i in launch.inputs:
                self._readers[values.root(i)].add(k)
        waits = {k: self._waits(k) for k in members}
        self._levels = _levels(members, waits, {k: joining.phases(self._launches[k]) for k in members})
        self.read = tuple(
            dict.fromkeys(i for launch in self._launches.values() for i in launch.waits_for if self._is_outside(i))
        )
        """The values that it reads, or waits for."""

    def _is_outside(self, i: int) -> bool:
        return self._values.root(i) not in self._own

    def _written_over(self, k: int) -> Iterator[tuple[int, int]]:
        """Return pairs of an input that is written over, and the output that is written there."""
        launch = self._launches[k]
        return ((launch.inputs[p], launch.outputs[q]) for p, q in self._joining.aliases(launch))

    def _waits(self, k: int) -> set[int]:
        """Return the launches of the group that one waits for: those that make what it reads, and those that read what
        it writes over."""
        root = self._values.root
        waits = {self._values.maker[root(i)] for i in self._launches[k].waits_for if not self._is_outside(i)}
        for i, _ in self._over[k]:
            waits |= self._readers[root(i)]
            if self._is_outside(i):
                for other, readers in self._readers.items():
                    if other not in self._own and self._values.may_be_one(other, root(i)):
                        waits |= readers
        return waits - {k}

    def conflicts(self, demanded: Collection[int]) -> set[int]:
        """Return the launches that cannot stay in the group for what they write over."""
        if len(self.members) == 1:
            return set()
        if self._levels is None:
            return {k for k in self.members if self._over[k]}
        wanted = self._own.intersection(demanded)
        return {k for k in self.members if any(self._values.root(i) in wanted for i, _ in self._over[k])}

    def call(self, demanded: Collection[int]) -> Call:
        """Return the call that runs the group."""
        if len(self.members) == 1:
            return self._single()
        assert self._levels is not None
        members = sorted(self.members, key=self._levels.__getitem__)
        launches, levels = zip(*((self._launches[k], self._levels[k]) for k in members), strict=True)
        home = self._homes(members)
        last = {home[o]: o for launch in launches for o in launch.outputs}
        """By the first value in each memory, the last one."""
        inputs = tuple(dict.fromkeys(i for launch in launches for i in launch.inputs if self._is_outside(i)))
        outputs = {root: o for root, o in last.items() if o in demanded or root not in self._own}
        temporaries = tuple(root for root in last if root not in outputs)
        given = {i: n for n, i in enumerate(inputs)}
        made = {root: len(inputs) + n for n, root in enumerate(outputs)} | {
            r: -1 - n for n, r in enumerate(temporaries)
        }

        def place(i: int) -> int:
            return given[i] if self._is_outside(i) else made[home[self._values.root(i)]]

        places = tuple(tuple(map(place, launch.inputs + launch.outputs)) for launch in launches)
        over = {i: o for k in members for i, o in self._over[k] if self._is_outside(i)}
        aliases = MappingProxyType({given[i]: place(o) - len(inputs) for i, o in over.items()})
        after = tuple(i for i in self.read if i not in given)
        return Call(launches, levels, inputs, tuple(outputs.values()), places, temporaries, aliases, after)

    def _single(self) -> Call:
        (launch,) = self._launches.values()
        places = tuple(range(len(launch.inputs) + len(launch.outputs)))
        aliases = MappingProxyType(dict(self._joining.aliases(launch)))
        return Call((launch,), (0,), launch.inputs, launch.outputs, (places,), (), aliases, launch.after)

    def _homes(self, members: Sequence[int]) -> Mapping[int, int]:
        """Return for each output the first value in its memory, which may come from outside."""
        home: dict[int, int] = {}
        for k in members:
            over = {o: self._values.root(i) for i, o in self._over[k]}
            for o in self._launches[k].outputs:
                first = over.get(o, o)
                home[o] = home.get(first, first)
        return home


def _levels(members: Sequence[int], waits: Mapping[int, set[int]], phases: Mapping[int, int]) -> dict[int, int] | None:
    """Return the first level of each member, all those that it waits for being done by then; None where some wait for
    themselves."""
    levels: dict[int, int] = {}
    left = list(members)
    while left:
        ready = [k for k in left if waits[k] <= levels.keys()]
        if not ready:
            return None
        for k in ready:
            levels[k] = max((levels[w] + phases[w] for w in waits[k]), default=0)
        left = [k for k in left if k not in levels]
    return levels


def _nobody(arrays: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("it is not to run")
