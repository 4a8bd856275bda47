"""The workloads and the criterion themselves: a test suite is only as good as what it compares with."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads import WORKLOADS, base, optimizer
from jax_stitch.inspect.report.accuracy import LeafAgreement, NoReference, agreement, is_floating, reference

HEAVY = {"adamw", "adamw_clipped", "training_step"}
"""Workloads whose arguments alone take JAX ten seconds."""
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in WORKLOADS]


@pytest.mark.parametrize("name", NAMES)
def test_abstract_arguments_are_those_of_make(name: str) -> None:
    """A plan made from shapes would be of another program than the one that runs."""
    workload = WORKLOADS[name]
    _, args = workload.make(workload.test_sizes[-1], jnp.bfloat16)
    _, shapes = workload.abstract(workload.test_sizes[-1], jnp.bfloat16)
    assert jax.tree.structure(args) == jax.tree.structure(shapes)
    for value, shape in zip(jax.tree.leaves(args), jax.tree.leaves(shapes), strict=True):
        assert (value.shape, value.dtype) == (shape.shape, shape.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_float64_reference_is_near_jit(name: str) -> None:
    """A cast or a random mask that differs under x64 makes the reference another function's."""
    workload = WORKLOADS[name]
    function, args = workload.make(workload.test_sizes[-1], jnp.float32)
    plain = jax.jit(function)(*args)
    leaves = agreement(plain, plain, reference(function, args))
    assert max(leaf.plain.largest for leaf in leaves) < 1e-4, max(leaves, key=lambda leaf: leaf.plain.largest)


def drawn(seed: int, shape: Any, dtype: Any, scale: float = 1.0, mean: float = 0.0) -> jax.Array:
    """By NumPy what JAX has to compile a program for, of each shape."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jax.device_put((values * np.float32(scale) + np.float32(mean)).astype(dtype))


@pytest.mark.parametrize(
    "name", ["adamw", *(pytest.param(n, marks=pytest.mark.slow) for n in sorted(HEAVY - {"adamw"}))]
)
def test_results_in_float16_are_finite(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A division by what has rounded to 0 leaves nothing to compare."""
    workload = WORKLOADS[name]
    for module in (base, optimizer):
        monkeypatch.setattr(module, "normal", drawn)
    function, args = workload.make(min(workload.test_sizes, key=prod), jnp.float16)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.jit(function)(*args)) if is_floating(x))


def test_workloads_include_a_size_that_divides_nothing() -> None:
    for workload in WORKLOADS.values():
        uneven = [size for size in workload.test_sizes if any(n % 4 for n in size)]
        assert uneven, workload.name


def one_leaf(stitched: np.ndarray, plain: np.ndarray, exact: np.ndarray) -> LeafAgreement:
    (leaf,) = agreement(jnp.asarray(stitched), jnp.asarray(plain), exact)
    return leaf


EXACT = np.linspace(-4.0, 4.0, 101)
PLAIN = (EXACT * (1 + 1e-6)).astype(np.float32)


def test_an_error_of_twice_the_plain_one_agrees_and_more_does_not() -> None:
    assert one_leaf((EXACT * (1 + 1.9e-6)).astype(np.float32), PLAIN, EXACT).agrees
    assert not one_leaf((EXACT * (1 + 2.6e-6)).astype(np.float32), PLAIN, EXACT).agrees


def test_one_unit_in_the_last_place_is_granted_to_a_perfect_plain_result() -> None:
    exact = EXACT.astype(np.float32).astype(np.float64)
    plain = exact.astype(np.float32)
    assert one_leaf(plain + np.spacing(plain) / 2, plain, exact).agrees
    assert not one_leaf(plain + 3 * np.spacing(plain), plain, exact).agrees


def test_one_wrong_element_among_many_right_ones_disagrees() -> None:
    exact = np.linspace(-4.0, 4.0, 1_000_001)
    plain = (exact * (1 + 1e-6)).astype(np.float32)
    stitched = plain.copy()
    stitched[7] *= 1 + 2e-5
    leaf = one_leaf(stitched, plain, exact)
    assert leaf.stitched.mean < leaf.allowed.mean and not leaf.agrees


def test_non_finite_values_must_stand_where_jit_has_them() -> None:
    plain, exact = PLAIN.copy(), EXACT.copy()
    plain[3], exact[3] = np.nan, np.nan
    assert one_leaf(plain, plain, exact).agrees
    moved = plain.copy()
    moved[3], moved[4] = 0.0, np.nan
    assert not one_leaf(moved, plain, exact).agrees
    plain[3] = np.inf
    assert not one_leaf(np.where(np.isinf(plain), -np.inf, plain), plain, exact).agrees


def test_a_finite_value_is_measured_where_only_jit_has_lost_it() -> None:
    plain = PLAIN.copy()
    plain[3] = -np.inf
    assert one_leaf(PLAIN, plain, EXACT).agrees
    wrong = PLAIN.copy()
    wrong[3] = 7.0
    assert not one_leaf(wrong, plain, EXACT).agrees
    assert not one_leaf(np.where(np.isinf(plain), np.inf, plain), plain, EXACT).agrees
    assert not one_leaf(plain, PLAIN, EXACT).agrees


def test_complex_numbers_are_measured_by_their_parts() -> None:
    """They had to be equal to the last bit: any other order of a sum disagreed."""
    plain, exact = (PLAIN + 1j * PLAIN[::-1]).astype(np.complex64), EXACT + 1j * EXACT[::-1]
    assert one_leaf(plain, plain, exact).agrees
    assert one_leaf(np.nextafter(PLAIN, np.float32(9)) + 1j * PLAIN[::-1], plain, exact).agrees
    for wrong in (plain.conj(), plain.real.astype(np.complex64)):
        assert not one_leaf(wrong, plain, exact).agrees
    with jax.enable_x64(True):
        found = reference(lambda x: x * jnp.exp(1j * x.real), (plain,))
    assert found.dtype == np.complex128


def test_what_differs_is_said() -> None:
    """It printed "DISAGREES, error 0": nobody could tell what, nor where, nor whether rounding tipped a comparison."""
    plain = np.arange(12, dtype=np.int32).reshape(3, 4)
    stitched, exact = plain.copy(), plain.copy()
    stitched[1, 2], stitched[2, 0], exact[2, 0] = 60, 9, 9
    assert str(one_leaf(stitched, plain, exact)) == (
        "result int32: DISAGREES, 2 of 12 elements that have to be the same differ, first at [1, 2]: 60 stitched, "
        "6 under jax.jit (jax.jit itself differs from the reference in 1 of them)"
    )
    truth = np.array([True, False, False])
    assert "first at [2]: True stitched, False under" in str(one_leaf(truth | [False, False, True], truth, truth))
    lost = PLAIN.copy()
    lost[3] = np.nan
    found = str(one_leaf(lost, PLAIN, EXACT))
    assert "DISAGREES, error" in found and "1 of 101 elements" in found and "first at [3]: nan stitched" in found
    assert "differ" not in str(one_leaf(PLAIN, PLAIN, EXACT)) and "differ" not in str(one_leaf(plain, plain, plain))
    alone = one_leaf(np.int32(3), np.int32(4), np.int32(4))
    assert "1 of 1 elements that have to be the same differ: 3 stitched, 4 under jax.jit" in str(alone)


def test_integers_must_be_equal() -> None:
    counts = np.arange(5)
    assert one_leaf(counts, counts, counts).agrees
    assert not one_leaf(counts + (counts == 2), counts, counts).agrees


def test_keys_must_be_equal() -> None:
    key, other = jax.random.key(1), jax.random.key(2)
    exact = reference(lambda k: k, (key,))
    assert agreement(key, key, exact)[0].agrees
    assert not agreement(other, key, exact)[0].agrees


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(4, np.float16)], ids=["shape", "dtype"])
def test_another_shape_or_dtype_is_an_error(wrong: np.ndarray) -> None:
    right = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="in place of"):
        one_leaf(wrong, right, right)


def test_a_cast_inside_is_told() -> None:
    with pytest.raises(NoReference, match="returns float32"):
        reference(lambda x: x.astype(jnp.float32), (jnp.ones(3),))


def test_a_loop_that_cannot_widen_is_told() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, carry: carry + x.sum(), jnp.float32(0))

    with pytest.raises(NoReference, match="cannot be evaluated in float64"):
        reference(loop, (jnp.ones(3),))
