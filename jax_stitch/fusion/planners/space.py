"""The patterns that planners choose among: sets of nodes as bitsets, which of them a kernel can hold, and what each
saves.

A set is a pattern if it is convex and local under some split of the work. Splits are those that the greedy search grows
regions from; a set can only be local under a split that reaches all of it. Sets are made of atoms, the kernels that XLA
has for the free nodes (2021 paper, section 6: the vertices of the explored graph are XLA's fusions).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jax_stitch.analysis import spread
from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.inputs_outputs import inputs_of, outputs_of
from jax_stitch.analysis.reach import bits, members_of
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.fusion import region
from jax_stitch.fusion.delta_evaluator import more_launches
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.search import Search
from jax_stitch.fusion.seeds import Seed, elementwise_seeds, reduction_seeds
from jax_stitch.graph.model import Node, TensorType
from jax_stitch.ir.operations import HEAVY


@dataclass(frozen=True, eq=False)
class Scored:
    """A pattern by its nodes, and what it saves as a kernel beside XLA's others."""

    nodes: int
    seed: Seed
    """One of its nodes or inputs, and the split of it that the pattern grows from."""
    seconds: float
    is_worth: bool
    """Whether it may be taken as a kernel."""
    before: int
    """All that its nodes depend on, outside it."""
    after: int

    @property
    def members(self) -> tuple[int, ...]:
        """Return its nodes, ascending."""
        return tuple(members_of(self.nodes))


@dataclass(frozen=True, eq=False)
class _Split:
    seed: Seed
    bound: Mapping[int, Binding]
    reached: int
    """Nodes that may be local under the split: those it binds, and those that each row can make for itself."""
    of_rows: int
    """Of these the ones that can be written: that cover all rows, or reduce them."""


class Space:
    """The patterns of the nodes that are free where a search stands."""

    def __init__(self, search: Search, patience: Patience = ENDLESS):
        self.search = search
        self.graph = search.graph
        self.patience = patience
        """When it is over, no further set is tried."""
        self._begun, self._allowed = time.process_time(), patience.left
        self.gave_up = False
        """Whether sets were left untried, since there would not have been the time for all of them."""
        self._known: dict[int, Scored | None] = {}
        self._ranks: dict[int, float] = {}
        self.maximal: tuple[int, ...] = ()
        """The largest pattern of each split."""
        self._splits = self._find_splits()

    @cached_property
    def atoms(self) -> tuple[int, ...]:
        """See ``atoms_of``."""
        return atoms_of(self.search)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each atom, the numbers of those that read it."""
        owner = {i: k for k, atom in enumerate(self.atoms) for i in members_of(atom)}
        consumers = []
        for k, atom in enumerate(self.atoms):
            users = {owner[u] for i in members_of(atom) for u in self.graph.users[i] if u in owner}
            consumers.append(tuple(sorted(users - {k})))
        return tuple(consumers)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each atom, the numbers of those that it reads."""
        producers: list[list[int]] = [[] for _ in self.atoms]
        for k, users in enumerate(self.consumers):
            for u in users:
                producers[u].append(k)
        return tuple(map(tuple, producers))

    @cached_property
    def sharers(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each value from outside that several atoms read, the numbers of these."""
        owner = {i: k for k, atom in enumerate(self.atoms) for i in members_of(atom)}
        read: dict[int, set[int]] = {}
        for i, k in owner.items():
            for o in self.graph[i].operands:
                if o not in owner and not is_rematerializable(self.graph[o]) and node_bytes(self.graph[o]) > 64:
                    read.setdefault(o, set()).add(k)
        return tuple(dict.fromkeys(tuple(sorted(atoms)) for atoms in read.values() if len(atoms) > 1))

    def _find_splits(self) -> tuple[_Split, ...]:
        search, splits = self.search, []
        regions: list[_Split] = []
        maximal: dict[int, None] = {}
        for seeds in (reduction_seeds, elementwise_seeds):
            for seed in seeds(self.graph, search.free, search.device):
                if any(s.seed.rows == seed.rows and s.bound.get(seed.node) == seed.binding for s in regions):
                    continue
                bound = spread.bind(self.graph, seed.node, seed.binding, seed.rows, search.free)
                cross = region.cross_row_reductions(self.graph, bound, seed.rows, search.free)
                alone = (i for i in search.free if i not in bound and _is_cheap(self.graph[i]))
                of_rows = bits([*(i for i in bound if i in search.free), *cross])
                split = _Split(seed, bound, of_rows | bits([*alone]), of_rows)
                regions.append(split)
                pattern = region.form(self.graph, bound, seed.rows, search.free, search.reach, search.device)
                if pattern is not None:
                    splits.append(split)
                    maximal[bits(pattern.nodes)] = None
        self.maximal = tuple(maximal)
        return tuple(splits)

    def gives_up(self, share: float) -> bool:
        """Return whether patience would be over before all sets have been tried, of which so large a share has been."""
        spent = time.process_time() - self._begun
        self.gave_up = self.gave_up or spent > share * self._allowed
        return self.gave_up

    def rank(self, nodes: int) -> float:
        """Return a quick estimate of the seconds that a set saves, whether or not it is a pattern: its traffic and
        launches alone.
        """
        if nodes not in self._ranks:
            members = frozenset(members_of(nodes))
            whole, _, before, extra = self.search.origins.split(members)
            values = (*inputs_of(self.graph, members), *outputs_of(self.graph, members))
            after = sum(node_bytes(self.graph[i]) for i in values) + extra
            device = self.search.device
            calls = device.target.launch_seconds * (whole + more_launches(self.graph, members) - 1)
            self._ranks[nodes] = (before - after) / device.memory_bandwidth + calls
        return self._ranks[nodes]

    def scored(self, nodes: int) -> Scored | None:
        """Return the set as a pattern under the split that suits it best; ``None`` where it is none."""
        if nodes not in self._known:
            self._known[nodes] = self._score(nodes) if nodes else None
        return self._known[nodes]

    def largest(self, nodes: int) -> list[Scored]:
        """Return the largest patterns inside a set, one for each split that has any."""
        by_nodes: dict[int, Scored] = {}
        members = set(members_of(nodes))
        for split in self._splits:
            if split.reached & nodes:
                pattern = region.form(
                    self.graph, dict(split.bound), split.seed.rows, members, self.search.reach, self.search.device
                )
                scored = self.scored(bits(pattern.nodes)) if pattern else None
                if scored is not None:
                    by_nodes[scored.nodes] = scored
        return list(by_nodes.values())

    def _score(self, nodes: int) -> Scored | None:
        search = self.search
        members = set(members_of(nodes))
        before, after = search.reach.all_before(members), search.reach.all_after(members)
        if before & after & ~nodes:
            return None
        best: Scored | None = None
        written = bits(outputs_of(self.graph, members))
        for split in self._splits:
            if nodes & ~split.reached or written & ~split.of_rows:
                continue
            pattern = region.form(
                self.graph, dict(split.bound), split.seed.rows, members, search.reach, search.device, whole=True
            )
            if pattern is None:
                continue
            gain = search.gain(pattern)
            worth = search.is_worth(pattern, gain)
            if best is None or (worth, gain.seconds) > (best.is_worth, best.seconds):
                # A reduction across rows alone has no value of its own under the split, but its operand has.
                node = min(pattern.bindings, key=lambda i: (i not in members, i))
                seed = Seed(node, pattern.bindings[node], split.seed.rows)
                best = Scored(nodes, seed, gain.seconds, worth, before & ~nodes, after & ~nodes)
        return best


def atoms_of(search: Search) -> tuple[int, ...]:
    """Return the free nodes by the kernel that XLA has for them, in the order of their last nodes."""
    groups: dict[str, int] = {}
    for i in sorted(search.free):
        node = search.graph[i]
        owner = node.operands[0] if node.op == "get-tuple-element" else i
        name = search.origins.of(owner)
        groups[name] = groups.get(name, 0) | 1 << i
    return tuple(sorted(groups.values(), key=int.bit_length))


def bound(search: Search) -> float:
    """Return seconds that no plan of the free nodes can save more than: one launch reads every value from outside once
    and writes every result once.
    """
    graph = search.graph
    members = frozenset(search.free)
    whole, _, before, _ = search.origins.split(members)
    values = {*inputs_of(graph, members), *outputs_of(graph, members)}
    least = sum(node_bytes(graph[i]) for i in values)
    launches = max(whole + more_launches(graph, members) - 1, 0) * search.device.target.launch_seconds
    return (before - least) / search.device.memory_bandwidth + launches


def _is_cheap(node: Node) -> bool:
    return isinstance(node.type, TensorType) and (node.tensor.size == 1 or node.op not in HEAVY)


def is_acyclic(patterns: Sequence[Scored]) -> bool:
    """Return whether patterns can run one after the other: none waits for itself by way of others."""
    return not cycle_of(patterns)


def cycle_of(patterns: Sequence[Scored]) -> tuple[Scored, ...]:
    """Return patterns that wait for each other in a ring, each for the one before; none where there is no such ring."""
    after = {id(p): [q for q in patterns if q is not p and p.after & q.nodes] for p in patterns}
    done: set[int] = set()
    for start in patterns:
        path: list[Scored] = []
        on_path: set[int] = set()
        stack: list[tuple[Scored, bool]] = [(start, True)]
        while stack:
            p, entering = stack.pop()
            if not entering:
                path.pop()
                on_path.discard(id(p))
                done.add(id(p))
                continue
            if id(p) in on_path:
                return tuple(path[next(k for k, q in enumerate(path) if q is p) :])
            if id(p) in done:
                continue
            path.append(p)
            on_path.add(id(p))
            stack.append((p, False))
            stack.extend((q, True) for q in after[id(p)])
    return ()


def disjoint(patterns: Iterable[Scored]) -> bool:
    """Return whether no node is in two patterns."""
    taken = 0
    for p in patterns:
        if taken & p.nodes:
            return False
        taken |= p.nodes
    return True
