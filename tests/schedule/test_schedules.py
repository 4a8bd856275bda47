"""What every schedule must be, on the plans of random functions and of some known ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.devices import Device
from jax_stitch.graph import TensorType
from jax_stitch.schedule import Part, ScheduledKernel
from jax_stitch.schedule.model import InnerReducePass, LoopPass, OncePass, RowPass, Storage, StorageKind
from jax_stitch.schedule.row_passes import PatternView, results_of
from jax_stitch.schedule.storage import MAX_CACHED_REGISTERS
from jax_stitch.schedule.walks import cached_values, walk_pass
from tests.drawn import program
from tests.fusion import forced

H200 = forced.device("h200")

DEVICES = {
    "cpu": forced.device("cpu"),
    "h200": forced.device("h200"),
    "small": forced.device("h200", multiprocessors=2, shared_per_block=2048, shared_per_block_optin=8192),
}


def random_kernels(seed: int, target: Device) -> list[ScheduledKernel]:
    with jax.enable_x64(True):
        made = program(Random(seed), steps=14)
        built = forced.graph_of(made.fun, *made.args)
    return forced.scheduled(forced.plan_of(built, target, seed), target)


def parts(kernels: list[ScheduledKernel]) -> Iterator[tuple[ScheduledKernel, Part]]:
    for kernel in kernels:
        for part in kernel.parts:
            yield kernel, part


@pytest.mark.parametrize("seed", range(60))
def test_schedules_of_random_functions(seed: int) -> None:
    name = sorted(DEVICES)[seed % 3]
    kernels = random_kernels(seed, DEVICES[name])
    for kernel, part in parts(kernels):
        assert_everything_is_written_once(kernel, part)
        assert_values_are_ready_when_read(kernel, part)
        if DEVICES[name].kind == "cuda":
            assert_memory_is_there_and_not_shared(kernel, part, DEVICES[name])
    for kernel in kernels:
        if DEVICES[name].kind == "cuda":
            assert len({p.split.threads for p in kernel.parts}) == 1, "the parts of a launch have its threads"


def writes(row_pass: RowPass) -> tuple[int, ...]:
    return row_pass.writes + row_pass.partials if isinstance(row_pass, OncePass | LoopPass) else ()


def assert_everything_is_written_once(kernel: ScheduledKernel, part: Part) -> None:
    written = [i for s in part.passes for i in writes(s)]
    assert sorted(written) == sorted(part.pattern.outputs)


def produced(part: Part, graph, row_pass: RowPass) -> set[int]:
    if isinstance(row_pass, OncePass):
        return set(row_pass.caches)
    kept = row_pass.keeps if isinstance(row_pass, LoopPass) else ()
    return {*kept, *(i for r in _reduces(row_pass) for i in results_of(graph, graph[r]))}


def assert_values_are_ready_when_read(kernel: ScheduledKernel, part: Part) -> None:
    graph = kernel.graph
    shape = PatternView(graph, part.pattern, *_row_and_periods(part))
    cached = cached_values(shape, part.passes)
    ready: set[int] = set()
    own: set[object] = set()
    for row_pass in part.passes:
        here = produced(part, graph, row_pass) if isinstance(row_pass, OncePass) else set()
        uses = row_pass.uses if isinstance(row_pass, LoopPass) else ()
        for e in uses:
            assert e in own, f"%{e[0]} was not kept before"
        walk = walk_pass(shape, row_pass, cached, uses)
        read = {i for i, _ in walk.cached if i in cached}
        assert read <= ready | here, f"{read - ready - here} are read before they are there"
        if isinstance(row_pass, LoopPass):
            assert set(row_pass.uses) <= set(part.own_storage) and set(row_pass.caches) <= set(part.own_storage)
            own |= set(row_pass.caches)
        ready |= produced(part, graph, row_pass)
    reduced = {i for i in part.pattern.nodes if graph[i].op == "reduce"}
    done = {r for s in part.passes for r in _reduces(s)}
    assert reduced == done, "a reduction in no stage"
    for i in part.storage:
        assert i in ready


def _reduces(row_pass: RowPass) -> tuple[int, ...]:
    if isinstance(row_pass, LoopPass):
        return row_pass.reduces
    return (row_pass.reduce, *row_pass.beside) if isinstance(row_pass, InnerReducePass) else ()


def _row_and_periods(part: Part):
    from jax_stitch.ir.indices.variables import row_index

    return row_index(part.split.rows, part.split.period), part.periods


def assert_memory_is_there_and_not_shared(kernel: ScheduledKernel, part: Part, target: Device) -> None:
    graph, rows, lanes = kernel.graph, part.split.rows_per_block, part.split.lanes
    assert part.shared_bytes <= target.shared_per_block_optin
    taken: list[tuple[int, int]] = [(0, part.reduction_bytes)]
    arrays: dict[int, tuple[int, int]] = {}
    for i, storage in part.storage.items():
        if storage.kind is StorageKind.SHARED:
            reduce = graph[i] if graph[i].op == "reduce" else graph[graph[i].operands[0]]
            arrays[storage.offset] = (storage.offset, storage.offset + rows * storage.size * _bytes(graph, reduce))
    taken += arrays.values()
    own = [s for s in part.own_storage.values() if s.kind is StorageKind.OWN_SHARED]
    taken += [(s.offset, s.offset + rows * s.size * _own_bytes(s)) for s in own]
    taken.sort()
    for (_, end), (start, _) in pairwise(taken):
        assert end <= start, "two arrays share memory"
    assert max(end for _, end in taken) <= part.shared_bytes
    registers = sum(-(-s.size // lanes) for s in part.own_storage.values() if s.kind is StorageKind.REGISTERS)
    assert registers <= MAX_CACHED_REGISTERS


def _bytes(graph, reduce) -> int:
    """Bytes of one result of a reduction as the compiler lays out its structure."""
    sizes = [_computed_bytes(graph[o].tensor) for o in reduce.operands[: len(reduce.operands) // 2]]
    return sizes[0] if len(sizes) == 1 else max(sizes) * len(sizes)


def _own_bytes(storage: Storage) -> int:
    return _computed_bytes(storage.type)


def _computed_bytes(t: TensorType) -> int:
    return {"pred": 1, "bf16": 4, "f16": 4}.get(t.dtype) or int(t.dtype[1:]) // 8


def only_part(function, *args, target: str = "h200") -> tuple[ScheduledKernel, Part]:
    with jax.enable_x64(True):
        built = forced.graph_of(function, *args)
    (kernel,) = forced.scheduled(forced.plan_of(built, DEVICES[target]), DEVICES[target])
    (part,) = kernel.parts
    return kernel, part


def shaped(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def test_softmax_reads_its_row_once() -> None:
    """On a GPU the exponentials, or the row, stay in registers between the passes."""
    kernel, part = only_part(lambda x: jax.nn.softmax(x, 1), shaped(64, 1000))
    loops = [s for s in part.passes if isinstance(s, LoopPass)]
    assert len(loops) == 3
    assert part.own_storage and all(s.kind is StorageKind.REGISTERS for s in part.own_storage.values())
    assert loops[1].uses and loops[2].uses
    assert kernel.composition == ("thread", "warp", "block")


def test_long_rows_go_to_shared_memory() -> None:
    _, part = only_part(lambda x: jax.nn.softmax(x, 1), shaped(4, 40_000))
    assert {s.kind for s in part.own_storage.values()} <= {StorageKind.OWN_SHARED, StorageKind.REGISTERS}
    assert part.shared_bytes <= DEVICES["h200"].shared_per_block_optin


def test_columns_are_read_by_neighbouring_threads() -> None:
    _, part = only_part(lambda x: x.sum(0) * 2, shaped(1000, 4096))
    assert part.split.order.value == "rows"


def test_short_rows_share_a_warp() -> None:
    kernel, part = only_part(lambda x: x / x.sum(1, keepdims=True), shaped(10_000, 8))
    assert part.split.lanes <= 8 and part.split.rows_per_block >= 32
    assert "block" not in kernel.composition


def test_a_reduction_that_keeps_places_fits_shared_memory() -> None:
    """Eight rows of a thousand places at a time are more than a small GPU's block has."""

    def f(x):
        s = x.sum(1, keepdims=True)
        return x * s + s.max(2, keepdims=True)

    for target in ("h200", "small"):
        with jax.enable_x64(True):
            built = forced.graph_of(f, shaped(64, 16, 700))
        for kernel in forced.scheduled(forced.plan_of(built, DEVICES[target]), DEVICES[target]):
            assert kernel.shared_bytes <= DEVICES[target].shared_per_block_optin


def test_partial_results_of_a_wide_row_fit() -> None:
    """Column sums over more columns than a block has registers and shared memory for."""
    with jax.enable_x64(True):
        built = forced.graph_of(lambda x: (x.sum(1), (x * 2).sum(0)), shaped(3000, 120_000))
    for kernel in forced.scheduled(forced.plan_of(built, DEVICES["h200"]), DEVICES["h200"]):
        assert kernel.shared_bytes <= DEVICES["h200"].shared_per_block_optin


@pytest.mark.parametrize("name", ["h200", "small"])
def test_partial_results_are_counted_by_blocks(name: str) -> None:
    with jax.enable_x64(True):
        built = forced.graph_of(lambda x: (x.sum(1), x.sum(0)), shaped(1000, 30))
    plan = forced.plan_of(built, DEVICES[name])
    found = [p for k in forced.scheduled(plan, DEVICES[name]) for p in k.parts if p.pattern.blocks is not None]
    assert found
    for part in found:
        assert part.split.blocks == part.pattern.blocks
        assert all(
            plan.graph[i].tensor.dims[0] == part.split.blocks for i in part.pattern.nodes if plan.graph[i].op == PARTIAL
        )


def test_blocks_that_wait_for_each_other_fit_the_device() -> None:
    """A launch of more blocks than run at a time would never end."""

    def centred(x):
        y = x - x.mean(1, keepdims=True)
        return y, y.sum(0), (y * x).sum(0)

    x = jax.ShapeDtypeStruct((40_000, 700), jnp.float32)
    (kernel,) = forced.stitched(forced.hlo_of(centred, x), H200).kernels
    scheduled = kernel.scheduled
    assert scheduled.residency is not None and scheduled.residency.last_block_from == len(scheduled.phases) > 1
    assert scheduled.blocks <= H200.multiprocessors * scheduled.residency.per_multiprocessor
    assert scheduled.residency.per_multiprocessor * scheduled.threads <= 1024
    assert scheduled.residency.per_multiprocessor * scheduled.shared_bytes <= H200.shared_per_block_optin
    assert len({p.split.threads for p in scheduled.parts}) == 1
    assert kernel.source.phases == tuple(sum(p.split.blocks for p in phase) for phase in scheduled.phases)


def test_nobody_waits_for_a_last_step_that_is_small() -> None:
    x = jax.ShapeDtypeStruct((40_000, 700), jnp.float32)
    (kernel,) = forced.stitched(forced.hlo_of(lambda x: jnp.exp(x).sum(), x), H200).kernels
    assert "ST_LAST_BLOCK_ALONE" in kernel.source.text and "ST_GRID_BARRIER" not in kernel.source.text


def test_positions_past_32_bits() -> None:
    """Pairwise differences that are never in memory, but number more than 2 ** 31."""

    def f(x, y):
        return (x[:, None] - y[None, :]).reshape(-1, 2).max(1).reshape(60_000, 30_000).sum(1)

    with jax.enable_x64(True):
        built = forced.graph_of(f, shaped(60_000), shaped(60_000))
    kernels = forced.scheduled(forced.plan_of(built, DEVICES["h200"]), DEVICES["h200"])
    assert kernels[0].parts[0].wide
    assert not only_part(lambda x: x.sum(1), shaped(60_000, 300))[1].wide


@pytest.mark.parametrize("target", DEVICES.values(), ids=DEVICES)
def test_what_is_looked_up_is_not_kept(target: Device) -> None:
    """A kernel computes kept values before the operation that tells where they are."""

    def fun(x: jax.Array, k: jax.Array) -> list[jax.Array]:
        corner = jnp.array([[0, 0], [2, 2], [4, 4], [1, 3]])[k]
        part = jax.lax.dynamic_slice(jax.nn.softmax(x), (corner[0], corner[1]), (32, 2))
        return [jax.nn.softmax(part), part.sum()]

    graph = forced.graph_of(fun, jnp.ones((64, 8)), jnp.int32(1))
    for seed in range(4):
        for _, part in parts(forced.scheduled(forced.plan_of(graph, target, seed), target)):
            for _, index in part.own_storage:
                assert not any("start" in str(i) for i in index)


@pytest.mark.parametrize("target", [forced.device("cpu"), H200], ids=["cpu", "h200"])
def test_values_that_other_rows_want_are_not_kept_per_row(target: Device) -> None:
    """A short loop over vectors, unrolled: each element of a step needs all elements of the one before."""

    def rotated(x):
        return jnp.concatenate([x[:, 1:] * 0.5, x[:, :1] - x[:, 2:]], 1)

    def steps(x):
        for _ in range(3):
            x = x + rotated(x + 0.1 * rotated(x))
        return x

    x = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    made = forced.stitched(forced.hlo_of(steps, x), target)
    assert len(made.kernels) == 1
    np.testing.assert_allclose(forced.run(made, [x])[0], steps(x), rtol=2e-5)
