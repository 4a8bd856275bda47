"""The second opinion at run time: kernels that compute something else than XLA are refused, and others are not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import StitchWarning, WrongKernel, stitch, stitch_jit
from jax_stitch.analysis import spread
from jax_stitch.emit.cpp import scalar
from jax_stitch.frontend.replay import StitchedGraph, replay, rounded_otherwise
from jax_stitch.jit.verify import kernels as judging
from jax_stitch.jit.verify.arguments import Kind, arguments, moved
from jax_stitch.jit.verify.exact import widened
from jax_stitch.jit.verify.judge import disagreement, overflows, wanders
from jax_stitch.util.options.verification import Verify, verify_for
from tests.fusion import forced
from tests.fuzz import quickly

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def normalised(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def walk(x: Any) -> Any:
    """A loop that magnifies every rounding."""
    return jax.lax.fori_loop(0, 40, lambda i, c: 3.9 * c * (1 - c), jax.nn.sigmoid(x))


def picked(x: Any) -> Any:
    places = jnp.argsort(x, -1)
    return jnp.take_along_axis(x, places, -1) * 2, places[:, :3], jnp.cumsum(x, -1).max(0)


@pytest.mark.parametrize("fun", [normalised, walk, picked])
@pytest.mark.parametrize("device", [None, "h200"])
def test_right_kernels_are_kept(fun: Any, device: str | None) -> None:
    """Also of functions that lose digits or order numbers: no warning, and the kernels run."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", StitchWarning)
        verified = jax.jit(stitch(fun, verify=True, schedule_device=device))
        text = verified.lower(X).as_text()
        found = jax.tree.leaves(verified(X))
    assert "stitch" in text
    assert all(np.shape(f) == np.shape(w) for f, w in zip(found, jax.tree.leaves(jax.jit(fun)(X)), strict=True))


@pytest.mark.parametrize(
    "fun",
    [
        lambda n: jnp.argsort(jnp.tanh(n), -1),
        lambda n: jnp.argmax(jax.nn.softmax(jnp.tanh(n * 0.5), -1), -1) + n[:, 0].astype(jnp.int32),
        lambda n: jnp.floor(jnp.log(n + 1.0) / np.log(2.0)).astype(jnp.int32),
        lambda n: jax.lax.fori_loop(0, 40, lambda i, c: 3.9 * c * (1 - c), jax.nn.sigmoid(n / 64)),
        lambda n: jax.lax.top_k(jnp.cos(n.astype(jnp.float32)) ** 2, 3)[1] * 2,
        lambda n: (jnp.sin(n * jnp.pi) > 0).sum(-1),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint32, np.int8])
def test_rounding_of_what_is_made_of_integers_passes(fun: Any, dtype: Any) -> None:
    """Integers have no digits to move: only other roundings within show what may go either way."""
    numbers = np.random.default_rng(3).integers(0, 100, (32, 32)).astype(dtype)
    with warnings.catch_warnings(), forced.everything_pays(966):
        warnings.simplefilter("error", StitchWarning)
        found = stitch_jit(fun, verify=True)(numbers)
    assert np.shape(found) == np.shape(jax.jit(fun)(numbers))


def test_integers_made_of_the_bits_of_roundings_pass() -> None:
    """Among thousands, some are the same in any few runs with other roundings, and another in ours."""
    numbers = np.random.default_rng(4).standard_normal((64, 256)).astype(np.float32)

    def fun(x: jax.Array) -> jax.Array:
        cut = jax.lax.cbrt(x) + jax.lax.exp(x * 0.1)
        return jax.lax.bitcast_convert_type(cut, np.int32) ^ jax.lax.bitcast_convert_type(jnp.tanh(cut), np.int32)

    with warnings.catch_warnings(), forced.everything_pays(943):
        warnings.simplefilter("error", StitchWarning)
        stitch_jit(fun, verify=True)(numbers)


def test_signs_of_no_numbers_say_nothing() -> None:
    """``top_k`` orders NaNs by their signs, which compilers choose: of -(3 x), or (-3) x. A kernel was refused."""
    x = np.full((3, 3), np.nan, np.float32)
    program = replay(StitchedGraph(forced.graph_of(lambda x: jax.lax.top_k(-(x * 3), 2)[0], x)))
    signs = []
    for seed in range(3):
        with rounded_otherwise(0.0, seed):
            signs.append(np.signbit(np.asarray(program([x])[0])).all())
    assert signs[1] != signs[2]


def test_what_rounds_otherwise_is_near_and_unlike() -> None:
    def fun(n: Any) -> tuple[Any, ...]:
        x = jnp.tanh(n * 0.1)
        return x, jnp.abs(x), n * 2, jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x)

    numbers = np.full((8, 8), 7, np.int32)
    program = replay(StitchedGraph(forced.graph_of(fun, numbers)))

    def moved_by(step: float, seed: int) -> list[np.ndarray]:
        with rounded_otherwise(step, seed):
            return [np.asarray(r) for r in program([numbers])]

    plain, once, again = moved_by(0.0, 0), moved_by(1e-3, 1), moved_by(1e-3, 2)
    for p, o, a in zip(plain, once, again, strict=True):
        np.testing.assert_allclose(o, p, rtol=1e-2)
        if np.issubdtype(p.dtype, np.floating):
            assert len(np.unique(p)) == 1 and len(np.unique(o)) > 32 and not np.array_equal(o, a)
        else:
            np.testing.assert_array_equal(o, p)


def planted(monkeypatch: pytest.MonkeyPatch, op: str, old: str, new: str) -> None:
    """An emitter that writes an operation wrongly."""
    usual = scalar.expression

    def wrong(operation: Any, operands: Any) -> str:
        text = usual(operation, operands)
        return text.replace(old, new) if operation.opcode == op else text

    monkeypatch.setattr(scalar, "expression", wrong)


@pytest.mark.parametrize(
    ("fun", "fault"),
    [
        (lambda x: (x - x.mean(-1, keepdims=True)) * 3, ("subtract", " - ", " + ")),
        (lambda x: jnp.where(x > x.max(-1, keepdims=True) - 1, x, 0) * 2, ("compare", ">", "<")),
        (lambda x: jnp.argmax(x * 2, -1) + jnp.argmin(x, -1), ("compare", ">", "<")),
        (lambda x: jnp.floor(x * 4) / 4 + x.sum(-1, keepdims=True), ("floor", "floor", "ceil")),
        # Of numbers that are all unlike it says the same.
        (lambda x: jnp.where(x <= jnp.flip(x, 0), x + 1, 2 * x) - x.mean(-1, keepdims=True), ("compare", "<=", "<")),
    ],
)
def test_a_wrong_kernel_is_refused(fun: Any, fault: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, *fault)
    wanted = jax.jit(fun)(X)
    with pytest.warns(StitchWarning, match="disagrees with XLA"):
        found = stitch_jit(fun, verify=True)(X)
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-5)


def short(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, c: 3.5 * c * (1 - c), jax.nn.sigmoid(x))


def halved(x: Any) -> Any:
    """A root by Newton's steps, of each row until it is found."""

    def root(v: Any) -> Any:
        def step(r: Any) -> Any:
            return 0.5 * (r + v / r)

        return jax.lax.while_loop(lambda r: jnp.abs(r * r - v) > 1e-4 * v, step, v)

    return jax.vmap(root)(jnp.abs(x) + 0.5)


def test_a_loop_of_unknown_length_is_run_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """On arguments on which XLA's ends within a bound; a right one is kept, and a wrong one refused."""
    x = X[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", StitchWarning)
        plan = stitch_jit(halved, verify=True).plan(x)
    assert plan.kernels and not any("verify" in note for note in plan.notes)
    planted(monkeypatch, "floor", "floor", "ceil")
    with pytest.warns(StitchWarning, match="disagrees with XLA"):
        found = stitch_jit(lambda x: halved(jnp.floor(x * 3)), verify=True)(x)
    np.testing.assert_allclose(np.asarray(found), np.sqrt(np.abs(np.floor(x * 3)) + 0.5), rtol=1e-3)


def swinging() -> Any:
    return lambda x: jax.lax.fori_loop(0, 20_000, lambda i, c: c - 0.01 * jnp.sin(c), x)


def test_a_long_loop_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left out where it was worth 256 MB: of the loops, those that gain the most."""
    x = X.reshape(-1)[:1024]
    planted(monkeypatch, "subtract", " - ", " + ")
    monkeypatch.setattr(judging, "_CONFIRMING", judging._MOVES)  # To be sure it would be run a hundred times.
    with pytest.warns(StitchWarning, match="disagrees with XLA"):
        stitch_jit(swinging(), verify=True)(x)
    with warnings.catch_warnings(), mock.patch.object(judging, "MOST_WORK", 1 << 28):
        warnings.simplefilter("error", StitchWarning)
        stitch_jit(swinging(), verify=True)(x)


def recurrent(w: Any, x: Any, h: Any) -> Any:
    """Whose state grows tenfold a step on random weights: long before the end it is no number."""
    return jax.lax.scan(lambda h, row: (jnp.dot(h, w, precision="highest") * row, None), h, x)[0]


def test_a_recurrence_is_run_on_arguments_on_which_it_does_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all results are NaN, a wrong kernel's are as well."""
    given = [jnp.zeros(shape) for shape in ((96, 96), (60, 8, 96), (8, 96))]
    planted(monkeypatch, "multiply", " * ", " + ")
    with pytest.warns(StitchWarning, match="disagrees with XLA"), forced.everything_pays(1):
        stitch_jit(recurrent, verify=True)(*given)


def test_a_number_that_a_kernel_both_reads_and_knows_is_no_random_one() -> None:
    """A loop that counts from 1 to a bound that is 1 everywhere: the bound was made up, and the start was 1."""
    ones = np.ones((3, 9), np.int32)
    with warnings.catch_warnings(), forced.everything_pays(835), quickly.cheap():
        warnings.simplefilter("error", StitchWarning)
        found = stitch_jit(jax.scipy.special.exp1, verify=True, strict=True)(ones)
    np.testing.assert_allclose(found, 0.21938393, rtol=1e-5)


def test_a_sort_of_the_wrong_rows_is_refused() -> None:
    """What was once returned unsorted: the planner's own check is taken out. The kernel is refused before it runs."""

    def fun(a: Any) -> Any:
        return jnp.sort(a) * 2

    a = X.reshape(-1)[:1024]
    with mock.patch.object(spread, "admits", lambda *_: True):
        plan = stitch_jit(fun).plan(a)
        found = stitch_jit(fun, verify=True)(a)
    assert not plan.kernels and any("the check of kernel" in note and "sort" in note for note in plan.notes)
    np.testing.assert_array_equal(np.asarray(found), np.sort(a) * 2)


def _sorted_with_places(x: Any, is_stable: bool) -> Any:
    return jax.lax.sort([x, jax.lax.broadcasted_iota(np.int32, x.shape, 1)], is_stable=is_stable, num_keys=1)


@pytest.mark.parametrize("is_stable", [True, False])
def test_equal_keys_in_any_order_pass(is_stable: bool) -> None:
    """Equal keys that an unstable sort leaves in another order than XLA's were an internal error."""
    keys = np.ones((5, 33), np.uint8)
    with forced.everything_pays():
        found = stitch_jit(lambda x: _sorted_with_places(x, is_stable), verify=True, strict=True)(keys)
    np.testing.assert_array_equal(np.sort(np.asarray(found[1])), np.tile(np.arange(33), (5, 1)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("largest", [True, False])
def test_lines_that_have_no_order_pass(dtype: Any, largest: bool) -> None:
    """What is no number comes first or last where it is compared as a number: a kernel that sorts was refused."""
    choose = jax.lax.approx_max_k if largest else jax.lax.approx_min_k
    with forced.everything_pays():
        keys = np.random.default_rng(0).standard_normal((9, 9)).astype(dtype)
        places = stitch_jit(
            lambda x: choose(x, 5, reduction_dimension=1, recall_target=1.0)[1], verify=True, strict=True, mode="now"
        )(keys)
    order = np.argsort(-keys if largest else keys, 1, kind="stable")[:, :5]
    np.testing.assert_array_equal(np.asarray(places), order)


@pytest.mark.parametrize("shape", [(4, 4), (3, 40)])
def test_equal_elements_of_a_reduction_in_any_order_pass(shape: tuple[int, int]) -> None:
    """Of equal largest elements, any may be the one that ``approx_max_k`` names: it was an internal error too."""

    def largest(x: Any) -> Any:
        return jax.lax.approx_max_k(jnp.heaviside(x, 1.0), 1, reduction_dimension=1, recall_target=1.0)[1]

    with forced.everything_pays(465):
        found = stitch_jit(largest, verify=True, strict=True)(np.ones(shape, np.float32))
    assert ((np.asarray(found) >= 0) & (np.asarray(found) < shape[1])).all()


def test_a_kernel_with_a_sort_in_any_order_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not run, whatever else was in it."""
    planted(monkeypatch, "subtract", " - ", " + ")

    def fun(x: Any) -> Any:
        keys, places = _sorted_with_places(x, is_stable=False)
        return keys - 3 * x, places

    with forced.everything_pays(), pytest.raises(WrongKernel, match="disagrees with XLA"):
        stitch_jit(fun, verify=True, strict=True)(X[:, :33])


def test_a_comparison_of_one_number_that_is_wrong_for_equals_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number was seldom the one that counts, and twice in a row hardly ever."""
    planted(monkeypatch, "compare", " <= ", " < ")

    def fun(x: Any, i: Any, j: Any) -> Any:
        return jnp.where((i >= 1) & (i <= 1) & (j >= 1) & (j <= 1), jnp.tanh(x), x * 3)

    with forced.everything_pays(), pytest.raises(WrongKernel, match="disagrees with XLA"):
        stitch_jit(fun, verify=True, strict=True)(X[:5], np.int32(0), np.int32(1))


def test_strict_functions_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "subtract", " - ", " + ")

    def fun(x: Any) -> Any:
        return x - 5 * x.mean(-1, keepdims=True)

    with pytest.raises(WrongKernel, match="disagrees with XLA"):
        stitch_jit(fun, verify=True, strict=True)(X)


def test_what_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_STITCH_VERIFY", raising=False)
    assert verify_for(None, False) is Verify.OFF and verify_for(True, True) is Verify.RAISE
    monkeypatch.setenv("JAX_STITCH_VERIFY", "1")
    assert verify_for(None, False) is Verify.REFUSE and verify_for(False, False) is Verify.OFF
    monkeypatch.setenv("JAX_STITCH_VERIFY", "yes")
    with pytest.raises(ValueError, match="JAX_STITCH_VERIFY"):
        stitch_jit(lambda x: x)
    with pytest.raises(ValueError, match="verify"):
        stitch_jit(lambda x: x, verify="yes")


EPS = float(np.finfo(np.float32).eps)
MANY = np.linspace(1, 2, 64, dtype=np.float32)


def test_the_judge_lets_rounding_pass_and_nothing_else() -> None:
    near = MANY * np.float32(1 + 4 * EPS)
    assert disagreement(near, MANY, [MANY] * 3, EPS) is None
    assert disagreement(MANY * np.float32(1.001), MANY, [MANY] * 3, EPS)
    assert disagreement(MANY * np.float32(1.001), MANY, [MANY, MANY * np.float32(1.0005)], EPS) is None
    one = MANY.copy()
    one[3] = np.nan
    assert disagreement(one, MANY, [MANY] * 3, EPS) and disagreement(MANY, one, [one] * 3, EPS)
    assert disagreement(one, one, [one] * 3, EPS) is None
    assert disagreement(one, MANY, [MANY] * 3, EPS, special=True) is None, "XLA may have lost it"
    assert disagreement(MANY, one, [one] * 3, EPS, special=True)
    whole = np.arange(9)
    assert disagreement(whole[::-1], whole, [whole], 0.0) and disagreement(whole, whole, [whole], 0.0) is None
    other = np.where(whole == 4, 5, whole)
    assert disagreement(other, whole, [other], 0.0) is None, "an integer that rounding moves as well"


def test_what_is_as_near_to_the_exact_result_is_right() -> None:
    """A sum that cancels, in another order: none of the moved runs shows what rounding does there."""
    far = MANY * np.float32(1.001)
    assert disagreement(far, MANY, [MANY] * 3, EPS, exact=far.astype(np.float64)) is None
    assert disagreement(far, MANY, [MANY] * 3, EPS, exact=MANY.astype(np.float64) * 1.0005) is None
    assert disagreement(far, MANY, [MANY] * 3, EPS, exact=MANY.astype(np.float64))
    assert disagreement(far, MANY, [MANY] * 3, EPS, exact=MANY.astype(np.float64) * 0.9) is None
    whole = np.arange(9)
    assert disagreement(whole + 1, whole, [whole], 0.0, exact=whole + 1) is None
    assert disagreement(whole + 1, whole, [whole], 0.0, exact=whole)


@pytest.mark.parametrize("fun", [normalised, short, picked, halved])
def test_graphs_in_float64(fun: Any) -> None:
    """They compute the same without roundings."""
    graph = forced.graph_of(fun, X if fun is not halved else X[:, 0])
    wide = widened(graph)
    assert wide is not None
    given = X if fun is not halved else X[:, 0]
    with jax.enable_x64(True):
        found = jax.jit(replay(StitchedGraph(wide)))([given.astype(np.float64)])
        wanted = jax.tree.leaves(jax.jit(fun)(given.astype(np.float64)))
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype or f.dtype == np.int32
        np.testing.assert_allclose(np.asarray(f), np.asarray(w), rtol=1e-6)


def test_a_graph_that_insists_on_its_types_has_none() -> None:
    graph = forced.graph_of(lambda x: (jax.lax.bitcast_convert_type(x, jnp.int32) + 1, jnp.sin(x)), X)
    assert widened(graph) is None
    assert widened(replace(graph, results=graph.results[1:])) is not None, "the rest of a program insists on nothing"


def test_arguments_are_of_all_kinds() -> None:
    types = [jax.ShapeDtypeStruct((500,), t) for t in ("float32", "bfloat16", "int8", "bool", "complex64")]
    usual, special, equal = (arguments(types, 0, kind) for kind in Kind)
    assert np.isfinite(usual[0]).all() and not np.isfinite(special[0]).all()
    assert usual[2].min() >= 0 > special[2].min()
    small = arguments(types, 0, Kind.SPECIAL, 1 / 256)
    assert all(100 < np.count_nonzero(e == 0) < 300 for e in equal[:3]) and not (usual[0] == 0).any()
    assert (
        np.nanmedian(np.abs(small[0])) < 0.01
        and not np.isfinite(small[0]).all()
        and np.array_equal(small[2], special[2])
    )
    assert overflows(np.array([1e30], np.float32)) and not overflows(usual[0]) and not overflows(usual[2])
    assert wanders(usual[0], usual[0] * np.float32(1.001), EPS) and not wanders(usual[0], usual[0], EPS)
    assert not wanders(usual[0], usual[0] * np.float32(1.001), 2**-7)
    assert [a.dtype for a in moved(usual, EPS, 1)] == [a.dtype for a in usual]
