"""Conditions that the ranges of counters decide: folded where they hold in every step, and nowhere else."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend import replay
from jax_stitch.graph.model import Graph
from jax_stitch.loops.rewrites.known_conditions import with_known_conditions
from tests.fusion import forced
from tests.loops.agreement import assert_equals_xla


def conditions(made: Graph) -> int:
    """Return the number of comparisons in a graph and in the loops and branches in it, but for the tests of loops."""
    inside = (g for n in made.nodes for k, g in n.graphs.items() if k != "condition")
    return sum(n.op == "compare" for n in made.nodes) + sum(map(conditions, inside))


def folded(fun: Any, *args: Any) -> tuple[int, int]:
    """Return how many comparisons there are before and after, and check that results stay."""
    before = graph.build(hlo_parser.parse(jax.jit(fun).lower(*args).compile().as_text()))
    after = with_known_conditions(before)
    graph.verify(after)
    for a, b in zip(*(replay.replay(replay.StitchedGraph(g))(list(args)) for g in (before, after)), strict=True):
        np.testing.assert_array_equal(a, b)
    return conditions(before), conditions(after)


ROWS, COLUMNS = 24, 8
TABLE = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def rows_from(first: int, last: int, offset: int = 0) -> Any:
    def run(table: Any) -> Any:
        return lax.fori_loop(first, last, lambda i, t: t.at[i + offset].set(jnp.tanh(t[i - 1])), table)

    return run


def backwards(table: Any) -> Any:
    return lax.fori_loop(0, ROWS - 1, lambda i, t: t.at[ROWS - 2 - i].add(0.5 * t[ROWS - 1 - i]), table)


def every_element(table: Any) -> Any:
    def row(i: Any, t: Any) -> Any:
        return lax.fori_loop(1, COLUMNS, lambda j, t: t.at[i, j].set(0.5 * t[i, j - 1] + t[i - 1, j]), t)

    return lax.fori_loop(1, ROWS, row, table)


def in_a_branch(table: Any) -> Any:
    def step(i: Any, t: Any) -> Any:
        return lax.cond(t.sum() > 0, lambda t, i: t.at[i].set(-t[i]), lambda t, i: t.at[i].add(1.0), t, i)

    return lax.fori_loop(0, ROWS, step, table)


def triangle(table: Any) -> Any:
    """Return a sum whose inner bound is known to lie inside."""

    def step(i: Any, t: Any) -> Any:
        return t.at[jnp.minimum(i, ROWS - 1)].add(jnp.where(i < ROWS, 1.0, jnp.nan))

    return lax.fori_loop(0, ROWS, step, table)


@pytest.mark.parametrize("run", [rows_from(1, ROWS), backwards, every_element, in_a_branch, triangle])
def test_writes_of_rows_that_a_counter_counts_have_no_tests(run: Any) -> None:
    """A test that stays makes each write read what it overwrites, and two sweeps of one."""
    before, after = folded(run, TABLE)
    assert before > 0 and after == (1 if run is in_a_branch else 0)  # The branch's own is data.


@pytest.mark.parametrize(
    "run",
    [rows_from(0, ROWS), rows_from(1, ROWS + 1), rows_from(1, ROWS, 1), rows_from(1, ROWS, -2)],
    ids=["wraps", "beyond", "one beyond", "before"],
)
def test_a_test_that_fails_in_one_step_stays(run: Any) -> None:
    _, after = folded(run, TABLE)
    assert after > 0
    assert_equals_xla(run, (TABLE,), "haswell")


def test_a_loop_that_ends_by_data_keeps_its_tests() -> None:
    """Its counter starts at 1 and has no known end."""

    def run(table: Any) -> Any:
        def step(state: Any) -> Any:
            i, t = state
            return i + 1, t.at[i].set(t[i - 1] * 1.5)

        return lax.while_loop(lambda s: jnp.abs(s[1]).max() < 50, step, (1, table))[1]

    before, after = folded(run, TABLE)
    assert after > 0, before


@pytest.mark.parametrize("device", ["haswell", "zen4", "h200"])
@pytest.mark.parametrize("run", [rows_from(1, ROWS), backwards, every_element, in_a_branch])
def test_kernels_without_the_tests_equal_xla(run: Any, device: str) -> None:
    assert_equals_xla(run, (TABLE,), device)


def random_body(rng: Random, dtype: str) -> str:
    """Return HLO lines that count in ``%hits`` how often some conditions on ``%i`` hold; each is worth another power of
    three, so that no two make up for each other.
    """
    lines, numbers, choices = [], ["%i"], []

    def made(type_: str, text: str) -> str:
        lines.append(f"  %x{len(lines)} = {type_} {text}")
        return f"%x{len(lines) - 1}"

    def constant() -> str:
        return made(f"{dtype}[]", f"constant({rng.randrange(0, 30)})")

    for _ in range(14):
        a, b = rng.choice(numbers), rng.choice([*numbers, constant()])
        kind = rng.randrange(8)
        if kind < 3:
            numbers.append(made(f"{dtype}[]", f"{rng.choice(['add', 'subtract', 'minimum', 'maximum'])}({a}, {b})"))
        elif kind == 3:
            numbers.append(made(f"{dtype}[]", f"clamp({constant()}, {a}, {constant()})"))
        elif kind == 4 and choices:
            numbers.append(made(f"{dtype}[]", f"select({rng.choice(choices)}, {a}, {b})"))
        elif kind == 5 and choices:
            op = rng.choice(["and", "or", "not"])
            both = f"{rng.choice(choices)}, {rng.choice(choices)}"
            choices.append(made("pred[]", f"{op}({both if op != 'not' else rng.choice(choices)})"))
        else:
            direction = rng.choice(["LT", "LE", "GT", "GE", "EQ", "NE"])
            choices.append(made("pred[]", f"compare({a}, {b}), direction={direction}"))
    total = "%hits"
    for number, choice in enumerate(choices[-8:]):
        worth = made("u32[]", f"constant({41**number % 2**32})")
        none = made("u32[]", "constant(0)")
        total = made("u32[]", f"add({total}, {made('u32[]', f'select({choice}, {worth}, {none})')})")
    lines.append(f"  %counted = u32[] add({total}, {made('u32[]', 'constant(0)')})")
    return "\n".join(lines)


def random_loop(seed: int) -> tuple[Graph, Any]:
    rng = Random(seed)
    dtype = rng.choice(["s32", "s8", "u8", "u32", "s64"])
    start, by, trips = rng.randrange(0, 12), rng.choice([1, 1, 2, 7]), rng.randrange(1, 25)
    state = f"({dtype}[], u32[], s32[])"
    computations = f"""
%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = {dtype}[] get-tuple-element(%p), index=0
  %hits = u32[] get-tuple-element(%p), index=1
  %k = s32[] get-tuple-element(%p), index=2
  %by = {dtype}[] constant({by})
  %next = {dtype}[] add(%i, %by)
  %one = s32[] constant(1)
  %k1 = s32[] add(%k, %one)
{random_body(rng, dtype)}
  ROOT %t = {state} tuple(%next, %counted, %k1)
}}
%condition (p: {state}) -> pred[] {{
  %p = {state} parameter(0)
  %k = s32[] get-tuple-element(%p), index=2
  %n = s32[] constant({trips})
  ROOT %c = pred[] compare(%k, %n), direction=LT
}}
"""
    body = f"""
  %given = u32[] parameter(0)
  %start = {dtype}[] constant({start})
  %zero = s32[] constant(0)
  %state = {state} tuple(%start, %given, %zero)
  %loop = {state} while(%state), condition=%condition, body=%body
  ROOT %r = u32[] get-tuple-element(%loop), index=1
"""
    return forced.graph_from(body, computations), np.uint32(0)


def test_of_random_conditions_those_are_folded_that_hold_in_every_step() -> None:
    """XLA runs both graphs. Narrow counters wrap, and a comparison may fail in the first or the last step alone."""
    before_all = after_all = 0
    for seed in range(60):
        before, given = random_loop(seed)
        after = with_known_conditions(before)
        graph.verify(after)
        before_all, after_all = before_all + conditions(before), after_all + conditions(after)
        with jax.enable_x64(True):
            runs = [jax.jit(replay.replay(replay.StitchedGraph(g)))([given])[0] for g in (before, after)]
        assert runs[0] == runs[1], seed
    assert after_all < 0.7 * before_all, (before_all, after_all)
