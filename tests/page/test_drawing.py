"""Folding and layout: what is drawn where."""

from __future__ import annotations

import itertools
import random
import time

from jax_stitch.inspect.page.fold import folded
from jax_stitch.inspect.page.layout import HEIGHT, WIDTH, layered
from jax_stitch.inspect.planned import NOWHERE, Operation


def operation(name: str, op: str, scope: str, operands: tuple[int, ...] = (), source: str = "m.py:1") -> Operation:
    return Operation(name, op, "f32[8]", 32, 8, operands, source, scope, NOWHERE, 1, False, False)


def test_an_edge_leads_downwards_and_no_two_boxes_overlap() -> None:
    """Boxes on one another cannot be read or clicked."""
    chance = random.Random(3)
    edges = [(chance.randrange(i), i) for i in range(1, 300) for _ in range(chance.randrange(1, 4))]
    places = layered(300, edges)
    assert all(places.y[a] < places.y[b] for a, b in edges)
    rows: dict[float, list[float]] = {}
    for x, y in zip(places.x, places.y, strict=True):
        rows.setdefault(y, []).append(x)
    for row in rows.values():
        row.sort()
        assert all(b - a >= WIDTH - 0.2 for a, b in itertools.pairwise(row))
    assert min(places.x) == 0 and sorted(rows) == [n * HEIGHT for n in range(len(rows))]


def test_a_chain_is_drawn_straight() -> None:
    places = layered(20, [(i, i + 1) for i in range(19)])
    assert len(set(places.x)) == 1


def test_thousands_of_operations_are_laid_out_within_seconds() -> None:
    """Quadratic work would take minutes for a training step."""
    chance = random.Random(1)
    edges = [(max(0, i - chance.randrange(1, 40)), i) for i in range(1, 15_000) for _ in range(2)]
    start = time.process_time()
    layered(15_000, [(a, b) for a, b in edges if a != b])
    assert time.process_time() - start < 20


def test_nothing_is_drawn_of_nothing() -> None:
    assert layered(0, []).x == ()


def test_alike_layers_are_one_group_and_what_is_once_stays_alone() -> None:
    operations = [operation("in", "negate", "model")]
    for layer in range(4):
        operations.append(operation(f"a{layer}", "add", f"model/Layer_{layer}/LayerNorm_0"))
        operations.append(operation(f"b{layer}", "add", f"model/Layer_{layer}/LayerNorm_1"))
    groups = folded(operations, range(len(operations)))
    assert [(g.label, g.times, len(g.members)) for g in groups] == [("negate", 1, 1), ("add", 4, 4), ("add", 4, 4)]


def test_two_operations_of_one_line_in_a_layer_stay_two() -> None:
    """Both are `add` of the same line and type: folded together, a layer would have one box too few."""
    operations = [operation(f"a{n}", "add", f"Layer_{n // 2}") for n in range(6)]
    assert [g.members for g in folded(operations, range(6))] == [(0, 2, 4), (1, 3, 5)]


def test_a_call_of_a_librarys_function_is_one_box() -> None:
    scopes = [f"Layer_{n}/jit(_bernoulli)/jit(_uniform)" for n in range(3)]
    operations = [operation(f"{op}{n}", op, scopes[n]) for n in range(3) for op in ("xor", "or", "add")]
    (group,) = folded(operations, range(9))
    assert (group.label, group.times, len(group.members)) == ("_bernoulli", 3, 9)


def test_layers_without_scopes_are_told_by_line_and_neighbours() -> None:
    operations = []
    for n in range(3):
        operations.append(operation(f"e{n}", "exponential", "", (2 * n - 1,) if n else (), "m.py:4"))
        operations.append(operation(f"l{n}", "log", "", (2 * n,), "m.py:5"))
    groups = folded(operations, range(6))
    assert sorted(len(g.members) for g in groups) == [1, 2, 3] or sorted(len(g.members) for g in groups) == [1, 1, 1, 3]
