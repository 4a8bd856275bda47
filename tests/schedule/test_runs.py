"""Runs and stretches of places on a CPU: nothing is decided in the innermost loop."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_stitch import stitch_jit
from jax_stitch.analysis.maps import Guard, Read
from jax_stitch.frontend.capture import capture
from jax_stitch.ir.indices import const, var
from jax_stitch.ir.indices.variables import PLACE
from jax_stitch.pipeline import stitch_capture
from jax_stitch.schedule.runs import breaks_of, decided, stretches
from jax_stitch.util.options.planner_names import PlannerName
from tests.fusion import forced


@given(
    size=st.integers(2, 40),
    bounds=st.lists(st.tuples(st.integers(-45, 45), st.integers(0, 30)), min_size=1, max_size=3),
    offset=st.integers(-20, 20),
    down=st.booleans(),
    step=st.sampled_from([1, 1, 2]),
)
def test_cuts_are_where_conditions_change(
    size: int, bounds: list[tuple[int, int]], offset: int, down: bool, step: int
) -> None:
    """In a stretch a condition is the same at every place, and its verdict is what the places say one by one."""
    place = var(PLACE, size)
    value = (-place if down else place) + offset
    guards = [Guard(value, low, low + length, step) for low, length in bounds]
    read, other = Read(0, (place,), tuple(guards)), Read(1, (const(0),))
    breaks = breaks_of(guards)
    covered = []
    for first, end in stretches(breaks, size):
        places = range(first, end)
        assert places, "no stretch is empty"
        covered += places
        truths = [
            all(g.low <= (v := value.evaluate({PLACE: j})) <= g.high and v % g.step == 0 for g in guards)
            for j in places
        ]
        chosen = decided((read, other), (first, end))
        if len(chosen) == 1:
            assert set(truths) == {chosen[0].operand == 0}
            assert not chosen[0].guards
        else:
            assert step > 1, "what counts places up or down is always decided"
    assert covered == list(range(size))


def test_what_another_variable_decides_is_left_open() -> None:
    """A condition on the row as well may hold at some places of a stretch only."""
    mixed = Guard(var(PLACE, 64) + var("row", 8), 0, 31)
    reads = (Read(0, (var(PLACE, 64),), (mixed,)), Read(1, (const(0),)))
    assert breaks_of([mixed]) == ()
    assert decided(reads, (0, 16)) == reads


def test_reads_without_conditions_are_all_made() -> None:
    """Both operands of an addition, not the first alone."""
    both = (Read(0, (var(PLACE, 64),)), Read(1, (var(PLACE, 64),)))
    assert decided(both, (0, 64)) == both


def rotated(x: jax.Array) -> jax.Array:
    """Halves of heads exchanged after a row's reduction."""
    y = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    first, second = jnp.split(y.reshape(x.shape[0], -1, 64), 2, axis=-1)
    return jnp.concatenate([-second, first], axis=-1).reshape(x.shape) + x


def shifted(x: jax.Array) -> jax.Array:
    """A padding at both ends, and a concatenation read backward."""
    y = x - x.max(-1, keepdims=True)
    return jnp.pad(y, ((0, 0), (3, 2)))[:, ::-1][:, : x.shape[1]] * jnp.concatenate([y[:, 50:], y[:, :50]], axis=1)


def spread(x: jax.Array) -> jax.Array:
    """A padding between elements: no place decides for its neighbour."""
    y = x - x.mean(-1, keepdims=True)
    return jax.lax.pad(y, jnp.asarray(0.5, y.dtype), ((0, 0, 0), (1, 0, 1)))


def joined(x: jax.Array) -> jax.Array:
    """A long reduction, in runs of lanes, of what is joined from pieces of unlike sizes."""
    y = jnp.concatenate([x[:, 7:], jnp.exp(x[:, :7]), x], axis=1)
    return y - y.sum(-1, keepdims=True)


def grouped(x: jax.Array) -> jax.Array:
    """Groups of two channels, as in GroupNorm: the next row lies two places further."""
    wide = x.reshape(x.shape[0], -1, 32, 2)
    return (wide - wide.mean((1, 3), keepdims=True)).reshape(x.shape)


def thirds(x: jax.Array) -> jax.Array:
    """Groups of three channels, with an exponential that is kept from pass to pass."""
    wide = jnp.exp(x.reshape(x.shape[0], -1, 16, 3))
    return (wide / wide.sum((1, 3), keepdims=True)).reshape(x.shape)


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=-1)


def first(x: jax.Array) -> jax.Array:
    """Over the first axis: blocks of columns, whose next piece of memory is far away."""
    return jax.nn.softmax(x, axis=0)


CASES: list[tuple[Callable[[jax.Array], jax.Array], tuple[int, int]]] = [
    *[(rotated, (9, 256)), (shifted, (5, 200)), (spread, (6, 70)), (joined, (3, 9000))],
    *[(grouped, (3, 49 * 64)), (grouped, (2, 3 * 64)), (thirds, (2, 600 * 48))],
    # Several short rows at a time, their number no multiple of that; fewer places than lanes.
    *[(softmax, (37, 100)), (softmax, (50, 5)), (softmax, (3, 128)), (softmax, (16, 129))],
    *[(first, (300, 701)), (first, (40, 9))],
]


@pytest.mark.parametrize(("function", "size"), CASES, ids=[f"{f.__name__}-{s}" for f, s in CASES])
def test_results(function: Callable[[jax.Array], jax.Array], size: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    with jax.enable_x64(True):
        exact = np.asarray(function(jnp.asarray(x, jnp.float64)))
    np.testing.assert_allclose(stitch_jit(function)(x), exact, rtol=3e-6, atol=3e-6 * np.abs(exact).max())


def test_only_the_pass_with_the_condition_is_cut() -> None:
    """The sum of squares goes over whole runs; what writes the halves does not."""
    plan = stitch_jit(rotated).plan(jax.ShapeDtypeStruct((512, 1024), jnp.float32), device="cpu")
    (kernel,) = plan.kernels
    part = kernel.source.split("ST_SPLIT")[1].split("#ifdef")[0]
    assert part.count("if (") == part.count("if (turns_ % ")
    assert kernel.source.count("ST_EACH_IN_SEGMENT") == 2


def test_interleaved_rows_run_fastest() -> None:
    plan = stitch_jit(grouped).plan(jax.ShapeDtypeStruct((4, 3136 * 64), jnp.float32), device="cpu")
    (kernel,) = plan.kernels
    assert "ST_EACH_OF_RUN(j, 2)" in kernel.source
    rows = kernel.source.split("ST_GROUP")[1].split("#ifdef")[0]
    assert rows.count(" % ") == rows.count("if (turns_ % ")


@pytest.mark.parametrize(("size", "asked"), [((256, 32768), True), ((2048, 64), False)])
def test_next_places_are_asked_for_where_they_are_far_away(size: tuple[int, int], asked: bool) -> None:
    """Of a block with all columns the next place follows in memory: the processor sees that by itself."""
    plan = stitch_jit(first).plan(jax.ShapeDtypeStruct(size, jnp.float32), device="cpu")
    (kernel,) = plan.kernels
    assert ("ST_FETCH_AHEAD" in kernel.source) is asked


def test_pieces_of_rows_that_are_read_again_stay_in_cache() -> None:
    """What a block reads again is no more than its core's share of the last cache."""
    cpu = forced.device("cpu", multiprocessors=1, l2_bytes=8 << 20)
    captured = capture(first, [jax.ShapeDtypeStruct((8192, 1024), jnp.float32)], cpu)
    (kernel,) = stitch_capture(captured, cpu, PlannerName.BEAM).kernels
    columns = 1024 // kernel.source.grid
    assert 2 * 4 * 8192 * columns <= cpu.l2_bytes
