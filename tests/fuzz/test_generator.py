"""The generator reaches all of ``jax.lax``, prints what runs, judges rightly, and reduces."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fuzz import child, generate, judge, perturb, recipes, reduce, run, surface
from tests.fuzz.child import Outcome, Task
from tests.fuzz.draft import Draft, Shared
from tests.fuzz.program import Program, from_json, to_json
from tests.fuzz.ways import Way

NARROW = {"narrow counter", "narrow places"}
NAMES_OF_LAX = [n for n in surface.surface() if n.startswith("lax.")]


def draft(seed: int) -> Draft:
    """Some values of each kind."""
    made = Draft(Shared(Random(seed), False, (1, 2, 3, 5, 8)))
    for dtype, shape in (("float32", (3, 5)), ("int32", (8,)), ("bool", (3, 5)), ("float32", (2, 3, 3)), ("uint8", ())):
        made.input(dtype, shape)
    return made


def test_nothing_of_lax_is_forgotten() -> None:
    """A function that a new JAX brings is drawn, or left out with a reason."""
    for prefix in ("lax", "lax.linalg"):
        module = surface.MODULES[prefix]
        public = [f"{prefix}.{n}" for n in dir(module) if not n.startswith("_")]
        functions = [n for n in public if surface.is_function(getattr(module, n.rpartition(".")[2]))]
        assert set(functions) == {n for n in functions if n in surface.surface() or surface.EXCLUDED.get(n)}


@pytest.mark.parametrize("part", range(4))
def test_each_function_of_lax_is_reached(part: int) -> None:
    """Fails for a function whose arguments nobody can guess: it would never be tested."""
    missing = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in NAMES_OF_LAX[part::4]:
            if not any(generate.attempt(draft(seed), name, 12) for seed in range(12)):
                missing.append(name)
    assert not missing


def test_a_number_is_a_program() -> None:
    """Else no failure could be run again."""
    for number in range(8):
        one, other = (generate.program(3, number, x64=False) for _ in range(2))
        assert one == other and one == from_json(to_json(one))


@pytest.mark.parametrize("number", range(6))
def test_a_program_prints_as_what_it_is(number: int) -> None:
    made = generate.program(6, number, x64=False)
    space: dict[str, Any] = {}
    exec(made.script(["results = f(*args)"]), space)
    here = jax.tree.leaves(made.function()(*made.arguments()))
    for a, b in zip(jax.tree.leaves(space["results"]), here, strict=True):
        one, other = np.asarray(a), np.asarray(b)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def judged(f: Callable[..., Any], other: Callable[..., Any], *args: np.ndarray) -> list[judge.Wrong]:
    """What is said of the results of ``other`` in place of those of ``f``."""
    results = [judge.arrays(jax.jit(g)(*args)) for g in (other, f)]
    return judge.judge(f, args, *results)


X = np.random.default_rng(0).standard_normal((33, 65)).astype(np.float32)


def one_element_off(x: jax.Array) -> jax.Array:
    y = jax.nn.softmax(x)
    return y.at[7, 3].mul(1.001)


WRONG = {
    "a sort that does not sort": (lambda x: jnp.sort(x) * 2, lambda x: x * 2),
    "one element of many": (jax.nn.softmax, one_element_off),
    "the wrong one of equal maxima": (
        lambda x: jnp.argmax(jnp.round(x), 1),
        lambda x: 64 - jnp.argmax(jnp.round(x)[:, ::-1], 1),
    ),
    "a NaN": (lambda x: x * 2, lambda x: (x * 2).at[0, 0].set(jnp.nan)),
    "no NaN": (lambda x: jnp.log(x), lambda x: jnp.where(x > 0, jnp.log(x), 0.0)),
    "an integer by one": (lambda x: (x > 0).sum(1), lambda x: (x > 0).sum(1) + 1),
    "a sum without its last term": (lambda x: x.sum(1), lambda x: x[:, :-1].sum(1)),
    "another type": (lambda x: x + 1, lambda x: (x + 1).astype(jnp.float16)),
}


RIGHT = {
    "another order of a sum": (lambda x: x.sum(1), lambda x: x[:, ::-1].cumsum(1)[:, -1]),
    "a product that overflows before its 0": (
        lambda x: (x.at[:, 0].set(0) * 1e4).prod(1),
        lambda x: (x.at[:, 0].set(0) * 1e4)[:, ::-1].cumprod(1)[:, -1],
    ),
    "another way to divide": (lambda x: jnp.floor(x * 30 / 3), lambda x: jnp.floor(x * 30 * jnp.float32(1 / 3))),
    "another way to standardise": (
        lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
        lambda x: (x - x.sum(1, keepdims=True) / 65) / jnp.sqrt((x * x).mean(1) - x.mean(1) ** 2)[:, None],
    ),
    "the order of equal sums": (
        lambda x: jnp.argsort((x[:, :4] * 0.1).sum(0) * 0 + x[0, 0] / 3),
        lambda x: jnp.argsort((x[:, :4] * 0.1).sum(0) * 0 + x[0, 0] / 3 + jnp.arange(4) * 0),
    ),
    "halves that are kept wide": (
        lambda x: (x.astype(jnp.bfloat16) * 1.1 - x.astype(jnp.bfloat16)) * 50,
        lambda x: (
            (x.astype(jnp.bfloat16).astype(jnp.float32) * jnp.bfloat16(1.1) - x.astype(jnp.bfloat16)) * 50
        ).astype(jnp.bfloat16),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_sees(name: str) -> None:
    assert judged(*WRONG[name], X)


@pytest.mark.parametrize("name", RIGHT)
def test_the_judge_lets_pass(name: str) -> None:
    assert not judged(*RIGHT[name], X)


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0)])
def test_running_sums_of_nothing_are_nothing(shape: tuple[int, int]) -> None:
    """Also where there are pieces to cut them into: rows that are long, and none of them."""
    x = np.zeros(shape, np.float32)
    for total in (lambda x: jax.lax.cumsum(x, 1), lambda x: jax.lax.cumprod(x, 1, reverse=True)):
        moved = perturb.perturbed(jax.make_jaxpr(total)(x))
        assert [r.shape for r in moved(np.uint32(1), x)] == [shape]


def test_nans_of_running_extremes_have_either_sign() -> None:
    """XLA's are negative at times where no operand's is; an order of them is then no more right than another."""
    x = np.full((3, 64), np.nan, np.float32)
    moved = jax.jit(perturb.perturbed(jax.make_jaxpr(lambda x: jax.lax.cummin(x))(x)))
    signs = np.array([np.signbit(moved(np.uint32(seed), x)[0]) for seed in range(8)])
    assert (signs != signs[0]).any() and signs.all((1, 2)).any() and not signs.any((1, 2)).all()


def test_the_bits_of_a_nan_are_anything_and_those_of_numbers_are_not() -> None:
    """As half as long numbers, a NaN is a NaN and a zero, or two NaNs."""
    x = np.array([0x7FFFFFFF, 0x3F800000, 0x80000000, 0x7F800000], np.uint32).view(np.float32)
    moved = jax.jit(perturb.perturbed(jax.make_jaxpr(lambda x: jax.lax.bitcast_convert_type(x, np.uint16))(x)))
    found = np.stack([moved(np.uint32(seed), x)[0] for seed in range(8)])
    assert len(set(found[:, 0, 0])) > 1 and (found[:, 1:] == x[1:].view(np.uint16).reshape(3, 2)).all()


def test_a_reduction_by_comparisons_has_no_order_among_nans_and_one_else() -> None:
    def largest(x: jax.Array) -> jax.Array:
        return jax.lax.reduce(x, np.float32(0), lambda a, b: jax.lax.select(a >= b, a, b), (1,))

    x = np.stack([np.array([3.0, np.nan, 1.0, np.nan, 2.0, 5.0, np.nan, 0.5], np.float32)] * 4)
    for given, differ in ((x, True), (np.nan_to_num(x, nan=4.0), False)):
        moved = jax.jit(perturb.perturbed(jax.make_jaxpr(largest)(given)))
        found = {float(v) for seed in range(16) for v in moved(np.uint32(seed), given)[0]}
        assert (len(found) > 1) == differ, found


def test_a_hang_is_one_of_kernels_as_users_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not optimised may take ten times as long as XLA's."""
    asked: list[Task] = []

    def passes(task: Task) -> Outcome:
        asked.append(task)
        return Outcome(task, "pass")

    monkeypatch.setattr(run, "run", passes)
    task = Task(1, 2)
    slow = Outcome(task, "hang", way=Way("forced", 3))
    monkeypatch.setattr(run, "outcomes", lambda *_: iter([slow]))
    summary = run.fuzz(iter([task]), 1, 1.0)
    assert summary.kinds == {"pass": 1} and [(t.optimised, t.ways) for t in asked] == [(True, (Way("forced", 3),))]


def test_comparisons_are_of_the_numbers_themselves() -> None:
    """Catches numbers that are moved before they are compared: equal ones were at times unequal, even to themselves,
    and a search in a sorted table ended anywhere, so that nothing that compares was judged.
    """
    table, x = np.linspace(0.5, 1.5, 11), np.ones(3)
    for fun in (
        lambda t, v: jax.numpy.searchsorted(t, v, side="right"),
        lambda t, v: (v == v) & (v == t[5]) & ~(v < t[5]) & ~(v != v),
    ):
        moved = jax.jit(perturb.perturbed(jax.make_jaxpr(fun)(table, x)))
        for seed in range(8):
            np.testing.assert_array_equal(moved(np.uint32(seed), table, x)[0], fun(table, x))


def test_infinite_weights_on_padding_are_anything_not_finite() -> None:
    """XLA multiplies them by zeros or leaves them out, as its program around them is; elsewhere nothing is open."""
    x, w = np.ones((1, 1, 8), np.float32), np.array([[[np.inf, 1.0, 1.0]]], np.float32)
    for padding, differ in (((1, 1), True), ((0, 0), False)):

        def layer(x: jax.Array, padding: tuple[int, int] = padding) -> jax.Array:
            return jax.lax.conv_general_dilated(x, w, (1,), [padding])

        moved = jax.jit(perturb.perturbed(jax.make_jaxpr(layer)(x)))
        found = [np.isnan(moved(np.uint32(seed), x)[0]) for seed in range(4)]
        assert any((f != found[0]).any() for f in found) == differ


def test_a_quotient_by_zero_is_anything() -> None:
    """XLA has 1 for ``x / x`` where it sees that, and all bits set elsewhere."""
    x = np.array([0, 3], np.uint8)
    moved = jax.jit(perturb.perturbed(jax.make_jaxpr(lambda x: jax.lax.div(x, x))(x)))
    found = np.stack([moved(np.uint32(seed), x)[0] for seed in range(8)])
    assert len(set(found[:, 0])) > 1 and (found[:, 1] == 1).all()


def test_seed_0_moves_nothing_in_a_loop() -> None:
    def steps(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 8, lambda i, y: y * 1.7, x)

    x = np.linspace(0.1, 2.3, 40).astype(np.float32)
    moved = jax.jit(perturb.perturbed(jax.make_jaxpr(steps)(x)))
    np.testing.assert_array_equal(moved(np.uint32(0), x)[0], steps(x))
    assert (np.asarray(moved(np.uint32(1), x)[0]) != np.asarray(steps(x))).any()


def test_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails wherever it sorts is reduced to a sort; processes are not needed for that."""

    def run(task: Task) -> Outcome:
        assert task.program is not None
        task.program.function()
        bad = "lax.sort(" in task.program.text
        return Outcome(task, kind="wrong" if bad else "pass", program=task.program, way=task.ways[0])

    monkeypatch.setattr(child, "run", run)
    sorting = range(37, 400)  # Of those before none sorts, and to make each takes a fifth of a second.
    made = next(p for n in sorting if "lax.sort(" in (p := generate.program(1, n, x64=False)).text)
    first = run(Task(1, 0, program=made, ways=(Way("default", 0),)))
    small, last = reduce.reduce(first, seconds=20)
    assert last.kind == "wrong" and len(small.operations) == 1 and small.operations[0] == "lax.sort"
    assert isinstance(small, Program) and len(small.text.splitlines()) <= 4


def test_every_composed_operation_is_made() -> None:
    """Loops, branches, derivatives: fails where one can never be drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in recipes.COMPOSED:
            assert any(generate.attempt(draft(seed), name) for seed in range(20)), name


def test_narrow_counters_row_writes_and_doubles_are_drawn() -> None:
    """Fails where one of these leaves the draw: wraps of narrow counters and loops that write rows were wrong or slow,
    and no program that was drawn had any.
    """
    drawn = [generate.program(5, number) for number in range(60)]
    rows, narrow = (sum(bool(names & set(p.operations)) for p in drawn) for names in ({"row writes"}, NARROW))
    doubles = sum(any(dtype == "float64" for dtype, _ in p.types.values()) for p in drawn)
    assert rows >= 5 and narrow >= 3 and doubles >= 5, (rows, narrow, doubles)


@pytest.mark.parametrize("name", ["row writes", "narrow counter", "narrow places"])
def test_each_form_of_rows_and_counters_is_taken_by_jax(name: str) -> None:
    """Fails where a form of these is text that JAX refuses, so that it is drawn and never comes to be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(generate.attempt(draft(seed), name) for seed in range(30)) >= 27
