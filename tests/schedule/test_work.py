"""How many threads a kernel is taken to have is how many the launcher takes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jax_stitch.backend.launch
from jax_stitch.analysis.patterns.traffic import BYTES_PER_THREAD
from jax_stitch.latency import latency
from jax_stitch.schedule import ScheduledKernel
from jax_stitch.schedule.work import work_of
from tests.fusion import forced

CPU = replace(forced.device("cpu", multiprocessors=2, warp_size=16, fp32_lanes=16), attached=False)


def kernel(rows: int, places: int) -> ScheduledKernel:
    x = jax.ShapeDtypeStruct((rows, places), jnp.float32)
    (found,) = forced.scheduled(forced.plan_of(forced.graph_of(lambda x: jax.nn.softmax(x, 1), x), CPU), CPU)
    return found


def test_the_launcher_has_the_same_number() -> None:
    text = (Path(jax_stitch.backend.launch.__path__[0]) / "handler.cc").read_text()
    (found,) = re.findall(r"kBytesPerThread = (\d+) << 10;", text)
    assert int(found) << 10 == BYTES_PER_THREAD


@pytest.mark.parametrize(("rows", "threads"), [(32, 1), (63, 1), (64, 2), (4096, 2)])
def test_another_thread_is_counted_where_there_is_work_for_it(rows: int, threads: int) -> None:
    """1,024 numbers of a row are read and written: 64 rows are 512 KB."""
    found = kernel(rows, 1024)
    assert work_of(found) is None
    taken = latency(found, CPU)
    (phase,) = taken.phases
    assert phase.resident == threads and (taken.start > 0) is (threads > 1)


def test_functions_of_the_c_library_are_work_for_threads() -> None:
    """Catches 60,000 distances on a sphere, of half a megabyte, computed by one thread for four milliseconds."""
    with jax.enable_x64(True):
        x = jax.ShapeDtypeStruct((250, 60), jnp.float64)
        graph = forced.graph_of(lambda x: jnp.sin(jnp.cos(x)) + jnp.arctan2(x, x + 1), x)
    (found,) = forced.scheduled(forced.plan_of(graph, CPU), CPU)
    work = work_of(found)
    assert work is not None and work >= 3 * 250 * 60 * 40 > 2 * BYTES_PER_THREAD
    assert found.bytes_read + found.bytes_written < BYTES_PER_THREAD
    (phase,) = latency(found, CPU).phases
    assert phase.resident == 2


def test_a_loop_is_as_much_work_as_it_computes() -> None:
    """Of little memory: its steps count, each function as twenty operations."""

    def steps(count: int) -> int:
        def loop(x: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, count, lambda _, c: jnp.sin(c) * 0.5, x)

        x = jax.ShapeDtypeStruct((256,), jnp.float32)
        (found,) = forced.scheduled(forced.plan_of(forced.graph_of(loop, x), CPU), CPU)
        work = work_of(found)
        assert work is not None
        return work

    assert steps(1000) == 10 * steps(100) >= 256 * 1000 * 20
