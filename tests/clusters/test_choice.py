"""Where clusters are taken: long rows, on devices that have them, and what they save there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import PtxKernel, occupancy, resident_blocks
from jax_stitch.checking import check
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion.plan_cost import predicted
from jax_stitch.latency import latency
from jax_stitch.latency.clusters import in_clusters
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.schedule import schedule
from jax_stitch.schedule.template import parse_templates
from tests.clusters.laid_out import FUNCTIONS, H200, arguments, made
from tests.fusion import forced

A100 = forced.device("a100")


def planned(name: str, rows: int, places: int, device: Device, dtype: Any = jnp.float32) -> Stitched:
    second = jnp.int32 if "entropy" in name else dtype
    shapes = [jax.ShapeDtypeStruct((rows, places), dtype)]
    if name != "softmax":
        shapes.append(jax.ShapeDtypeStruct((rows,) if second == jnp.int32 else (rows, places), second))
    return stitch_capture(capture(FUNCTIONS[name], shapes, device), device)


@pytest.mark.parametrize(
    "dtype", [jnp.float32, pytest.param(jnp.bfloat16, marks=pytest.mark.slow)], ids=["f32", "bf16"]
)
@pytest.mark.parametrize(
    ("name", "rows", "places"),
    [
        ("softmax", 64, 262_144),
        ("cross_entropy", 64, 262_144),
        ("cross_entropy_and_gradient", 64, 262_144),
        ("layer_norm_gradient", 64, 131_072),
        ("softmax", 8, 262_144),
        ("softmax", 8, 65_536),
    ],
)
def test_long_rows_take_one_launch_of_clusters_on_a_device_that_has_them(
    name: str, rows: int, places: int, dtype: Any
) -> None:
    """Predicted to take less time than one block for each row."""
    (kernel,) = planned(name, rows, places, H200, dtype).kernels
    scheduled = kernel.scheduled
    assert scheduled.cluster > 1 and kernel.source.grid % scheduled.cluster == 0
    assert f"__cluster_dims__({scheduled.cluster}, 1, 1)" in kernel.source.text
    alone = schedule(scheduled.graph, [p.pattern for p in scheduled.parts], H200, "alone")
    assert alone.cluster == 1
    assert latency(scheduled, H200).seconds < latency(alone, H200).seconds


@pytest.mark.parametrize("name", ["softmax", "cross_entropy_and_gradient"])
def test_other_devices_keep_a_block_for_each_row(name: str) -> None:
    for kernel in planned(name, 64, 262_144, A100).kernels:
        assert kernel.scheduled.cluster == kernel.source.cluster == 1
        assert "cluster" not in kernel.source.code.lower() and "cluster" not in kernel.scheduled.composition


def test_rows_that_a_block_holds_stay_with_one() -> None:
    """Nothing is read twice there, and blocks would wait for each other."""
    for rows, places in ((8192, 1024), (4096, 8192)):
        (kernel,) = forced.stitched(
            forced.hlo_of(FUNCTIONS["softmax"], np.zeros((rows, places), np.float32)), H200
        ).kernels
        assert kernel.scheduled.cluster == 1


def test_what_waits_for_all_blocks_has_none() -> None:
    """Sums across rows at each place follow in a phase of their own: there need not be room for all."""
    kernels = [k.scheduled for k in planned("scale_gradient", 512, 65_536, H200).kernels]
    waiting = [k for k in kernels if k.residency is not None and k.residency.last_block_from > 1]
    assert waiting
    for k in waiting:
        assert schedule(k.graph, [p.pattern for p in k.parts], H200, "asked", cluster=8).cluster == 1


def test_the_plan_says_so() -> None:
    x = jax.ShapeDtypeStruct((64, 262_144), jnp.float32)
    plan = stitch_jit(FUNCTIONS["softmax"]).plan(x, device="h200")
    (kernel,) = plan.kernels
    (template,) = parse_templates(kernel.schedule)
    assert str(template.places[0]) == "CLUSTER_8" and "cluster" in kernel.composition
    assert str(template) in str(plan) and kernel.launch.grid == 512
    assert plan.launches == 1 and plan.bytes == plan.bound_bytes
    # What is asked for instead is had: the latency-evaluator then has the row read again, and says how much that is.
    other = stitch_jit(FUNCTIONS["softmax"], templates="reduce_max[GRID_64,CTA_32-WARP_32]").plan(x, device="h200")
    assert "cluster" not in other.kernels[0].composition
    assert other.kernels[0].latency.phases[0].bytes == 2 * kernel.latency.phases[0].bytes
    assert other.kernels[0].latency.seconds > kernel.latency.seconds


def test_the_best_of_the_sizes_is_taken_and_it_has_to_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments("softmax", 8, 16_384, np.float32)
    (kernel,) = forced.stitched(forced.hlo_of(FUNCTIONS["softmax"], *args), replace(H200, l2_bytes=1 << 14)).kernels
    graph, patterns = kernel.scheduled.graph, [p.pattern for p in kernel.scheduled.parts]
    ways = [schedule(graph, patterns, H200, "k", cluster=n) for n in (1, 2, 4, 8)]
    best = min(ways, key=lambda k: latency(k, H200).seconds)
    assert in_clusters(ways[0], H200).cluster == best.cluster > 1
    monkeypatch.setattr("jax_stitch.latency.clusters.WORTH", 0.0)
    assert in_clusters(ways[0], H200) is ways[0]


def test_sectors_a_row_is_read_once() -> None:
    """Counted at full length: the bytes of one cluster of the 64, against those of one block."""
    x = jax.ShapeDtypeStruct((64, 262_144), jnp.float32)
    (kernel,) = planned("softmax", 64, 262_144, H200).kernels
    counted = check(kernel.source, [None], list(range(kernel.source.cluster))).findings
    (read,) = (t for t in counted.traffic if t.name == "in0")
    assert not counted.faults, str(counted)
    assert read.read_by_warps == read.read == 262_144 * 4 // 32 and not any(read.again)
    alone = stitch_capture(
        capture(FUNCTIONS["softmax"], [x], H200), H200, templates="reduce_max[GRID,CTA_32-WARP_32]"
    ).kernels[0]
    again = next(t for t in check(alone.source, [None], [0]).findings.traffic if t.name == "in0")
    assert again.read_by_warps == 3 * read.read_by_warps and sum(again.again) == 2 * read.read


def test_few_long_rows_are_worth_a_kernel_where_clusters_take_them() -> None:
    """The delta-evaluator counts the multiprocessors that clusters keep busy: more than rows."""
    shape = [jax.ShapeDtypeStruct((8, 262_144), jnp.float32)]
    clusters, blocks = (
        stitch_capture(capture(FUNCTIONS["softmax"], shape, H200), d)
        for d in (H200, replace(H200, compute_capability=(8, 0)))
    )
    assert [k.scheduled.cluster for k in clusters.kernels] == [8]
    assert max(k.scheduled.cluster for k in blocks.kernels) == 1
    assert predicted(clusters.plan, H200).bytes < predicted(blocks.plan, H200).bytes


def test_a_mean_over_few_long_rows_keeps_as_many_blocks_busy_as_there_are_rows() -> None:
    """Partial results of a few numbers are small, however many; those by place, or of short rows, are not worth it."""
    for device in (H200, A100):
        (kernel,) = planned("cross_entropy", 60, 65_536, device).kernels
        assert kernel.scheduled.parts[0].split.blocks == 60 and kernel.scheduled.parts[0].split.sequence == 1
    (short,) = planned("cross_entropy", 60, 1000, H200).kernels
    assert short.scheduled.parts[0].split.blocks == 15


def test_clusters_are_on_as_many_multiprocessors_as_processing_clusters_have_room_for() -> None:
    """132 multiprocessors are eight times 16 and four that no cluster of eight can count on."""
    held = occupancy(32, 128 << 10, 1024, H200)
    assert held.blocks == 1
    assert [resident_blocks(held, H200, n) for n in (1, 2, 4, 8)] == [132, 128, 128, 128]
    assert resident_blocks(replace(held, blocks=3), H200, 8) == 8 * 6 * 8
    small = replace(H200, multiprocessors=4)
    assert resident_blocks(replace(held, blocks=4), small, 8) == 16


def test_a_small_part_of_a_device_has_smaller_clusters() -> None:
    """One that has fewer multiprocessors than a cluster blocks could not launch it."""
    sizes = [replace(H200, multiprocessors=n).cluster_blocks for n in (1, 2, 3, 7, 8, 132)]
    assert sizes == [1, 2, 2, 4, 8, 8] and A100.cluster_blocks == 1
    for n in (1, 3):
        small = replace(H200, multiprocessors=n)
        (kernel,) = forced.stitched(
            forced.hlo_of(FUNCTIONS["softmax"], *arguments("softmax", 2, 100_000, np.float32)), small
        ).kernels
        assert kernel.scheduled.cluster <= small.cluster_blocks
        assert latency(kernel.scheduled, small).seconds > 0


def test_what_an_exchange_takes_is_counted() -> None:
    args = arguments("softmax", 64, 32_768, np.float32)
    kernels = [made("softmax", args, n).stitched.kernels[0].scheduled for n in (1, 8)]
    compiled = PtxKernel("k", "k", "sm_90", "", b"", 32, 0, 0, 0)
    counts = [dict(latency(k, H200, compiled).phases[0].instructions).get("exchange", 0) for k in kernels]
    # Of each warp: before its row, for the greatest element, and for the sum.
    assert counts == [0, 3]
