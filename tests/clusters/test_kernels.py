"""Kernels in clusters of blocks compute what the function says: in the checking mode as on a GPU, and on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch import stitch
from jax_stitch.checking import Checked, check, check_function, function
from jax_stitch.emit import KernelSource
from jax_stitch.schedule.model import StorageKind
from jax_stitch.schedule.template import parse_templates, templates_of
from tests.clusters.laid_out import FUNCTIONS, arguments, exact, made
from tests.fusion import forced
from tests.some import some

HALF = jnp.bfloat16, jnp.float16
TOLERANCE = {np.dtype(np.float32): 2e-5, np.dtype(jnp.bfloat16): 6e-2, np.dtype(np.float16): 8e-3}


def agree(got: Any, want: Any, dtype: Any) -> None:
    tolerance = TOLERANCE[np.dtype(dtype)]
    for g, w in zip(got, want, strict=True):
        scale = max(1.0, np.abs(w).max())
        np.testing.assert_allclose(np.asarray(g, np.float64), w, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("cluster", [pytest.param(2, marks=pytest.mark.slow), 4, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_in_clusters_of_each_size(name: str, cluster: int) -> None:
    """A lane that has another's places, a partial sum that reaches some blocks, or one that comes too late."""
    args = arguments(name, *((40, 1003) if "entropy" in name else (5, 770)), np.float32)
    found = made(name, args, cluster)
    assert found.cluster == cluster
    checked = check_function(found.stitched, args)
    assert not checked.faulty, str(checked)
    agree(checked.results, exact(name, args), np.float32)
    if cluster == 4:
        with mock.patch.object(function, "check", backwards):
            again = check_function(found.stitched, args)
        assert not again.faulty, str(again)
        assert [r.tobytes() for r in again.results] == [r.tobytes() for r in checked.results]


def backwards(source: KernelSource, arrays: Sequence[Any]) -> Checked:
    """Blocks last to first, in their clusters as well."""
    return check(source, arrays, range(source.grid)[::-1])


@pytest.mark.parametrize("name", ["softmax", "layer_norm_gradient", "cross_entropy_and_gradient"])
@pytest.mark.parametrize("dtype", HALF, ids=["bf16", "f16"])
def test_half_precision(name: str, dtype: Any) -> None:
    args = arguments(name, 40 if "entropy" in name else 3, 1003, dtype)
    found = made(name, args, 4)
    assert found.cluster == 4
    checked = check_function(found.stitched, args)
    assert not checked.errors, str(checked)
    reference = jax.jit(FUNCTIONS[name])(*args)
    assert [r.dtype for r in checked.results] == [r.dtype for r in jax.tree.leaves(reference)]
    agree(checked.results, exact(name, args), dtype)


@settings(max_examples=some(2, of=5), deadline=None)
@given(
    name=st.sampled_from([n for n in sorted(FUNCTIONS) if "entropy" not in n]),
    cluster=st.sampled_from([2, 4, 8]),
    rows=st.integers(1, 9),
    places=st.integers(2, 700),
)
def test_any_length_of_rows(name: str, cluster: int, rows: int, places: int) -> None:
    """Rows shorter than the lanes, blocks without a place, vectors, a row of one tile and one place."""
    args = arguments(name, rows, places, np.float32, seed=places)
    found = made(name, args, cluster)
    checked = check_function(found.stitched, args)
    assert not checked.errors, str(checked)
    agree(checked.results, exact(name, args), np.float32)


@pytest.mark.parametrize(
    ("dtype", "part_name"), [(np.float32, "reduce_max"), (jnp.bfloat16, "reduce_sum")], ids=["f32", "bf16"]
)
def test_rows_too_long_for_registers_are_kept_in_the_shared_memory_of_all_blocks(dtype: Any, part_name: str) -> None:
    """Also where the host has what the blocks keep in one array, beside what comes after it."""
    args = arguments("softmax", 2, 9000, dtype)
    (asked,) = parse_templates(f"{part_name}[GRID,CLUSTER_4-CTA_2-WARP_32]")
    found = made("softmax", args, 1, templates=[asked])
    (kernel,) = found.stitched.kernels
    (part,) = kernel.scheduled.parts
    kept = [s for s in part.own_storage.values() if s.kind is StorageKind.OWN_SHARED]
    size = np.dtype(dtype).itemsize
    assert [s.size for s in kept] == [9000] and part.split.own_places(9000) * size >= 9000 * size / 4
    assert part.shared_bytes < kept[0].offset + 9000 * size / 4 + 64 * 4 * size + 64
    checked = check_function(found.stitched, args)
    assert not checked.errors, str(checked)
    want = exact("softmax", args)
    agree(checked.results, want, dtype)
    agree(forced.run(found.stitched, args), want, dtype)
    # Each element is read from memory once.
    (launch,) = checked.launches
    (read,) = (t for t in launch.traffic if t.name == "in0")
    assert read.bytes_read == args[0].nbytes and read.read * 32 <= read.bytes_read + 32 and read.read_again(1) == 0


@pytest.mark.parametrize("cluster", [2, 8])
@pytest.mark.parametrize("name", ["layer_norm_gradient", "scale_gradient", "cross_entropy_and_gradient"])
def test_the_same_text_runs_on_the_cpu(name: str, cluster: int) -> None:
    args = arguments(name, 20, 2047, np.float32)
    found = made(name, args, cluster)
    assert found.cluster == cluster
    agree(forced.run(found.stitched, args), exact(name, args), np.float32)


@pytest.mark.parametrize(
    ("name", "dtype", "places", "vector"),
    [
        ("softmax", np.float32, 1000, 4),
        ("layer_norm_gradient", np.float32, 1022, 2),
        ("softmax", jnp.bfloat16, 1000, 8),
        ("scale_gradient", np.float32, 1000, 4),
        ("softmax", np.float32, 1003, 1),
    ],
)
def test_vectors_of_which_some_lanes_have_one_fewer(name: str, dtype: Any, places: int, vector: int) -> None:
    """A row that is no multiple of what all lanes take at a time, as most vocabularies are none."""
    args = arguments(name, 4, places, dtype)
    found = made(name, args, 2)
    part = found.stitched.kernels[0].scheduled.parts[0]
    assert part.vectors.get(places, 1) == vector and places % (part.split.lanes * 2)
    checked = check_function(found.stitched, args)
    assert not checked.errors, str(checked)
    agree(checked.results, exact(name, args), dtype)


def test_a_cluster_can_be_asked_for() -> None:
    """By its template, in a plan and in a function that runs here."""
    x = arguments("softmax", 16, 4099, np.float32)[0]
    asked = "reduce_max[GRID_16,CLUSTER_8-CTA_4-WARP_32]"
    run = jax.jit(stitch(lambda x: jax.nn.softmax(x, 1), schedule_device="h200", templates=asked))
    agree([run(x)], exact("softmax", [x]), np.float32)
    (template,) = parse_templates(asked)
    (kernel,) = made("softmax", [x], 1, templates=[template]).stitched.kernels
    assert [str(t) for t in templates_of(kernel.scheduled)] == [asked]
    assert kernel.scheduled.composition == ("thread", "warp", "block", "cluster")
    assert (kernel.source.grid, kernel.source.block, kernel.source.cluster) == (128, 128, 8)
    assert "16 clusters of 8 blocks of a row x 1024 lanes" in kernel.source.text
