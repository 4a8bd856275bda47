"""What programs are timed on."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.jit.tune.arguments import MOST_SETS, TooLarge, argument_sets
from jax_stitch.util import timing
from jax_stitch.util.timing import repeated, time_programs

CPU = dataclasses.replace(devices.get("cpu"), l2_bytes=1 << 20, memory_bytes=1 << 30)
Type = jax.ShapeDtypeStruct
WIDE = np.ones((800, 800), np.float32)


@pytest.mark.parametrize(("rows", "count"), [(16, MOST_SETS), (1 << 10, 2), (1 << 11, 1), (1 << 12, 1)])
def test_the_sets_do_not_fit_the_cache_together(rows: int, count: int) -> None:
    sets = argument_sets([Type((rows, 256), jnp.float32), Type((), jnp.float32)], CPU)
    assert len(sets) == count
    assert count == MOST_SETS or sum(a.nbytes for s in sets for a in s) >= 2 * CPU.l2_bytes
    addresses = {a.unsafe_buffer_pointer() for s in sets for a in s}
    assert len(addresses) == 2 * count
    assert len(argument_sets([Type((rows, 256), jnp.float32)], CPU, in_cache=True)) == 1


def test_small_arguments_are_one_set():
    """Eight of them would stay in the cache; a program holds the code of a call for each."""

    def sets(rows: int) -> int:
        return len(argument_sets([Type((rows, 256), jnp.float32)], CPU))

    most = CPU.l2_bytes // 16 // MOST_SETS // 1024
    assert (sets(most), sets(2 * most)) == (1, MOST_SETS)


def test_they_leave_the_memory_to_others() -> None:
    with pytest.raises(TooLarge):
        argument_sets([Type((1 << 27,), jnp.float32)], CPU)
    small = dataclasses.replace(CPU, memory_bytes=8 * 3 << 20)
    assert len(argument_sets([Type((1 << 18,), jnp.float32)], small)) <= 3


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"]
)
def test_values_are_of_the_type_and_harmless(dtype: str) -> None:
    with jax.enable_x64(True):
        ((x, _),) = argument_sets([Type((700,), jnp.dtype(dtype)), Type((3000, 2), jnp.float32)], CPU, True)
    assert x.dtype == dtype and x.shape == (700,)
    values = np.asarray(x)
    assert len(np.unique(values)) > 1
    if dtype == "bool":
        return
    assert np.isfinite(np.log(values.astype(np.float64) + (x.dtype.kind in "iu"))).all()
    if x.dtype.kind in "iu":  # Indices into the table: all of it, and nothing outside.
        assert values.min() >= 0 and values.max() < 3000 and values.max() > min(100, 2500)


def test_nothing_to_pass() -> None:
    assert argument_sets([], CPU) == [()]
    ((empty,),) = argument_sets([Type((0, 4), jnp.float32)], CPU)
    assert empty.shape == (0, 4)


def test_each_call_has_the_next_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python, and inside a program."""
    seen: list[int] = []

    def slow(x: jax.Array) -> jax.Array:
        seen.append(int(x[0]))
        _ = WIDE @ WIDE
        return x

    sets = [(jnp.full(4, n),) for n in range(3)]
    time_programs({"slow": slow}, sets[0], rounds=3, seconds=0.1, others=sets[1:])
    assert len(seen) >= 6 and all(b == (a + 1) % 3 for a, b in itertools.pairwise(seen))
    for on_cpu in (True, False):
        monkeypatch.setattr(timing, "_runs_calls_at_once", lambda on_cpu=on_cpu: on_cpu)
        for trips, last in ((1, 0), (2, 10), (3, 20), (5, 10), (6, 20)):
            program = repeated(jax.jit(lambda x: x * 10), sets[0], {}, trips, sets[1:])
            np.testing.assert_array_equal(program(), np.full(4, last))
