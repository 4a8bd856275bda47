"""Every row is worked on exactly once, whatever the split."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.fusion.search import partial_blocks
from jax_stitch.schedule.model import Order, Split
from jax_stitch.schedule.split import Work, choose, loop_split
from tests.fusion import forced

DEVICES = {
    "cpu": forced.device("cpu"),
    "h200": forced.device("h200"),
    "small": forced.device("h200", multiprocessors=3),
    "one core": forced.device("cpu", multiprocessors=1),
}


def rows_done(split: Split) -> Counter[int]:
    """The rows that the blocks do, counted as the runtime's ST_GROUP has it."""
    groups = -(-split.period // split.rows_per_block)
    done: Counter[int] = Counter()
    for block in range(split.blocks):
        for turn in range(split.sequence):
            group = block * split.sequence + turn
            batch, first = group // groups, group % groups * split.rows_per_block
            if batch >= split.rows // split.period:
                break
            last = min(first + split.rows_per_block, split.period)
            done.update(batch * split.period + r for r in range(first, last))
    return done


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([2, 3, 4, 8, 16]), st.integers(8, 200), st.sampled_from([1, 8, 500]))
def test_cores_have_about_as_many_rows(cores: int, rows_of_core: int, places: int) -> None:
    """Catches a last block that one core has more than the others: of 500 rows, 279 were one core's of two."""
    rows = cores * rows_of_core + 1
    split = choose(forced.device("cpu", multiprocessors=cores), Work(rows, rows, places, Order.LANES))
    groups = ceil(rows / split.rows_per_block)
    busiest = ceil(ceil(groups / split.sequence) / cores) * split.sequence
    assert busiest <= 1.06 * groups / cores + 1


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(DEVICES)),
    st.integers(1, 3000),
    st.integers(1, 3),
    st.sampled_from([1, 2, 7, 8, 31, 33, 100, 1000, 5000, 100_000]),
    st.sampled_from(Order),
    st.sampled_from([None, 1, 5, 200]),
    st.sampled_from([None, 256]),
    st.tuples(st.sampled_from([1, 40]), st.sampled_from([None, 1, 4])),
)
def test_each_row_is_done_once(name, period, batches, places, order, blocks, threads, limits) -> None:
    device, (partial_places, most_rows) = DEVICES[name], limits
    if partial_places > 1:
        order = Order.LANES
    if device.kind == "cpu":
        threads = most_rows = None
    work = Work(period * batches, period, places, order, blocks, threads, partial_places)
    split = choose(device, work, most_rows=most_rows)
    assert rows_done(split) == Counter(range(period * batches))
    if blocks is not None:
        assert split.blocks == blocks, "partial results are laid out for that many"
    if device.kind == "cuda":
        assert 32 <= split.threads <= device.threads_per_block and split.threads % 32 == 0
        assert split.lanes & (split.lanes - 1) == 0, "lanes combine by halves"
        assert threads is None or split.threads == threads
    if partial_places > 1:
        rows = split.rows_per_block
        assert rows == 1 if device.kind == "cpu" else rows & (rows - 1) == 0, "partial results join by halves"
    if most_rows is not None:
        assert split.rows_per_block <= most_rows


@pytest.mark.parametrize("places", [8, 300, 4096, 100_000])
def test_a_gpu_block_is_neither_idle_nor_alone(places: int) -> None:
    """Few threads for long rows, or a whole block for a short one."""
    split = choose(DEVICES["h200"], Work(10_000, 10_000, places, Order.LANES))
    assert split.threads >= min(256, places * split.rows_per_block)
    assert split.lanes <= max(8, places)


def test_few_rows_that_are_neighbours_keep_more_blocks_busy() -> None:
    """256 rows of 100 places were eight blocks of 32 rows; many rows have as many places a thread as before."""
    few, many = (choose(DEVICES["h200"], Work(rows, rows, 100, Order.ROWS, threads=512)) for rows in (256, 100_000))
    assert few.blocks >= 32 and few.rows_per_block >= 8
    assert many.lanes < few.lanes


def test_sums_of_columns_beside_other_parts_fill_the_device() -> None:
    """A launch's blocks of 256 threads were 192 for 3,072 columns: one on most multiprocessors, which hold eight."""
    work = Work(3072, 3072, 4096, Order.ROWS, threads=256, row_vector=4)
    split = choose(DEVICES["h200"], work)
    assert split.blocks >= 2 * DEVICES["h200"].multiprocessors
    assert split.rows_per_block >= 8


def test_few_long_rows_have_a_block_each() -> None:
    """Where a row's share of the sums across rows is small. 256 rows were done by 64 blocks, in turn."""
    h200, kilobyte = DEVICES["h200"], 1024
    assert partial_blocks(256, h200, kilobyte, 32 * kilobyte) == 256
    assert partial_blocks(256, h200, 8 * kilobyte, 32 * kilobyte) == 64
    assert partial_blocks(256, h200, 4, kilobyte) == 64
    assert partial_blocks(10_000, h200, 4, 32 * kilobyte) == 2 * h200.multiprocessors


def test_rows_that_end_apart_do_not_wait_for_many() -> None:
    """On a CPU a block goes on until its last row ends; each row of a GPU's is a thread, of which a warp waits."""
    cpu, h200 = forced.device("cpu"), forced.device("h200")
    together, apart = loop_split(cpu, 4096), loop_split(cpu, 4096, apart=True)
    assert 8 <= apart.rows_per_block < together.rows_per_block
    assert apart.blocks * apart.rows_per_block == together.blocks * together.rows_per_block == 4096
    assert loop_split(h200, 4096) == loop_split(h200, 4096, apart=True)


def test_rows_of_a_loop_are_read_in_long_runs_where_their_carry_stays_near() -> None:
    """Steps that read 256 rows of a large array each, block after block, wait for memory: a cart-pole took twice as
    long. A row that carries much has shorter blocks, and each core has one.
    """
    cpu = forced.device("cpu")
    few = loop_split(cpu, 8192, carry=16)
    assert few.rows_per_block == min(cpu.shared_per_block // 32, 8192 // cpu.multiprocessors)
    assert loop_split(cpu, 8192, carry=4096).rows_per_block == loop_split(cpu, 8192).rows_per_block == 256
    assert loop_split(cpu, 512, carry=16).blocks == cpu.multiprocessors


@pytest.mark.parametrize(
    ("rows", "places", "blocks", "lanes"),
    [
        (262_144, 64, None, 8),
        (262_144, 100, None, 16),
        (2048, 64, None, 32),  # With fewer lanes many threads would have no row.
        (8192, 1024, None, 128),
        (8192, 1024, 264, 32),
        (8192, 2048, 264, 256),
    ],
)
def test_lanes_of_a_row_on_a_gpu(rows: int, places: int, blocks: int | None, lanes: int) -> None:
    """Measured on an H200: many rows of 64 in 37 us with 8 lanes each, 42 with 32; the mean of 8,192 rows' results, 264
    blocks, in 10 us with a warp for each row, 16 with four.
    """
    split = choose(DEVICES["h200"], Work(rows, rows, places, Order.LANES, blocks))
    assert split.lanes == lanes
