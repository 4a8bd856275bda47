"""Is a set of nodes a pattern as it is? Found out without making what remains of those that are none."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from jax_stitch.analysis import results
from jax_stitch.analysis.accesses import accesses
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import members_of
from jax_stitch.fusion import explore, region
from jax_stitch.fusion.planners.space import Space
from jax_stitch.fusion.search import Search
from jax_stitch.graph import Graph
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.util.options.planner_names import PlannerName
from tests.drawn import program
from tests.fusion import forced
from tests.fusion.layered import random_graph

DEVICES = [forced.device("h200"), forced.device("cpu")]


def graphs() -> list[Graph]:
    """Of few operations of each kind, and drawn programs, whose padding and slices move elements."""
    small = [random_graph(rng, rng.randint(3, 9)) for rng in map(Random, range(12))]
    drawn = [program(Random(seed), steps=14, max_size=3000) for seed in range(4)]
    return small + [forced.graph_of(made.fun, *made.args) for made in drawn]


def what_is_in(pattern: Pattern | None) -> object:
    """Patterns are compared by identity, and what is in them by value."""
    return pattern and (pattern.nodes, pattern.rows, pattern.bindings, pattern.inputs, pattern.outputs)


def test_it_is_what_remains_where_nothing_has_to_go() -> None:
    """Would show a set that is taken for no pattern, or for one that has to lose some of its nodes."""
    rng, whole, parts = Random(0), 0, 0
    for number, graph in enumerate(graphs()):
        search = Search(graph, DEVICES[number % 2], ThreadLoops((), {}))
        space = Space(search)
        sets = [set(members_of(s)) for s in space.maximal]
        sets += [set(rng.sample(sorted(search.free), rng.randint(1, len(search.free)))) for _ in range(40)]
        sets += [nodes - {rng.choice(sorted(nodes))} for nodes in sets if len(nodes) > 1]
        for nodes in sets:
            for split in space._splits:
                given = (graph, dict(split.bound), split.seed.rows, nodes, search.reach, search.device)
                pattern = region.form(*given)
                found = region.form(*given, whole=True)
                is_whole = pattern is not None and pattern.nodes == nodes
                assert what_is_in(found) == (what_is_in(pattern) if is_whole else None)
                whole, parts = whole + is_whole, parts + (not is_whole)
    assert whole > 100 and parts > 100


@pytest.mark.usefixtures("only_new_objects")
def test_a_planned_graph_has_nothing_remembered() -> None:
    """What its elements read would take more memory than the plan, as long as that lives."""
    for name in (PlannerName.BEAM, PlannerName.SPAN):
        graph = graphs()[-1]
        plan = explore(graph, DEVICES[0], name)
        assert not any(plan.graph in kept._of for kept in results._every)
        other = weakref.ref(graph)
        accesses(graph)
        del graph, plan
        gc.collect()
        assert other() is None
