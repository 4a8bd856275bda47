"""Sectors and bank conflicts as counted, against counts by brute force."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_stitch.checking import check, check_function
from jax_stitch.graph.model import TensorType
from tests.checking.kernels import kernel
from tests.fusion import forced

X = np.arange(256, dtype=np.float32)
LENGTH = 4096
DATA = np.arange(LENGTH, dtype=np.float32)
INPUT = (TensorType("f32", (LENGTH,)),)
INDICES = (TensorType("s32", (64, 8)),)
OUTPUT = (TensorType("f32", (64,)),)


def sectors(addresses: list[int], size: int = 4) -> int:
    return len({a * size // 32 for a in addresses})


# Each thread reads the places that a table names, some turns left out, in a loop of its own length: what a warp reads
# together is what its threads read at one turn.
GATHER = kernel(
    """  float sum = 0;
  for (int k = 0; k < 8; ++k) {
    const int i = in1[t * 8 + k];
    if (i == -2) break;
    if (i >= 0) sum += in0[i];
  }
  out0[t] = sum;""",
    inputs=INPUT + INDICES,
    outputs=OUTPUT,
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([64, 300, LENGTH]), st.floats(0, 0.9))
@example(seed=0, most=64, skipped=0.5)
def test_sectors_of_a_gather(seed: int, most: int, skipped: float) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, most, (64, 8)).astype(np.int32)
    table[rng.random(table.shape) < skipped] = -1
    table[rng.random(table.shape) < skipped / 4] = -2
    want = 0
    blocks, asked = set(), 0
    for warp in (table[:32], table[32:]):
        ended = np.zeros(32, bool)
        for turn in warp.T:
            ended |= turn == -2
            places = [int(i) for i, over in zip(turn, ended, strict=True) if i >= 0 and not over]
            want += sectors(places)
            blocks |= {p // 8 for p in places}
            asked += len(places)
    checked = check(GATHER, [DATA, table])
    assert not checked.findings, str(checked.findings)
    data, _, out = checked.findings.traffic
    assert (data.read_by_warps, data.read_by_blocks, data.read) == (want, len(blocks), len(blocks))
    assert data.bytes_read == 4 * asked
    assert (out.written_by_warps, out.written, out.read) == (8, 8, 0)
    assert data.written == data.written_by_warps == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 64, 300]), st.sampled_from([1, 2, 4]))
def test_bank_conflicts(seed: int, most: int, width: int) -> None:
    """Words of 4, 8 and 16 bytes: a warp, half of one, and a quarter at a time."""
    places = np.random.default_rng(seed).integers(0, most, (64, 8)).astype(np.int32)
    ctype = {1: "float", 2: "double", 4: "Quad"}[width]
    value = {1: "v", 2: "float(v)", 4: "v.a"}[width]
    source = kernel(
        f"""  for (int i = t; i < 300 * {width}; i += 64) shared[i] = 0;
  ST_SYNC
  float sum = 0;
  for (int k = 0; k < 8; ++k) {{
    const {ctype} v = reinterpret_cast<const {ctype}*>(shared)[in0[t * 8 + k]];
    sum += {value};
  }}
  out0[t] = sum;""",
        inputs=INDICES,
        outputs=OUTPUT,
        shared_bytes=300 * 4 * width,
        before="struct alignas(16) Quad { float a, b, c, d; };",
    )
    extra = 0
    together = 32 // width
    for first in range(0, 64, together):
        for turn in places[first : first + together].T:
            words = {width * int(p) + w for p in turn for w in range(width)}
            banks = Counter(w % 32 for w in words)
            extra += max(banks.values()) - -(-len(words) // 32)
    findings = check(source, [places]).findings
    assert findings.extra_wavefronts == extra, str(findings)
    assert sum(f.count for f in findings.faults) == extra


@pytest.mark.parametrize(
    ("stride", "by_warps", "once"), [(1, 8, 8), (2, 16, 16), (4, 32, 32), (0, 2, 1)], ids=lambda v: str(v)
)
def test_strides(stride: int, by_warps: int, once: int) -> None:
    findings = check(kernel(f"  out0[t] = in0[t * {stride}];", outputs=OUTPUT), [X]).findings
    assert (findings.traffic[0].read_by_warps, findings.traffic[0].read) == (by_warps, once)


def test_each_block_and_each_phase() -> None:
    """Two blocks read the same eight sectors, and again after a barrier."""
    source = kernel(
        "  float s = in0[t];\n  s += in0[t];\n  out0[b * 64 + t] = s;\n"
        "  ST_GRID_BARRIER\n  if (b == 1) out1[t] = in0[t];",
        grid=2,
        phases=(2, 1),
        outputs=(TensorType("f32", (128,)), TensorType("f32", (64,))),
    )
    (data,) = (t for t in check(source, [X]).findings.traffic if t.name == "in0")
    assert (data.read_by_warps, data.read_by_blocks, data.read) == (40, 24, 16)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_moves_each_byte_once(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    with jax.enable_x64(True):
        made = forced.stitched(forced.hlo_of(lambda x: jax.nn.softmax(x, axis), x), forced.device("h200"))
        checked = check_function(made, [x])
        want = jax.nn.softmax(x, axis)
    assert not checked.faulty, str(checked)
    assert checked.bytes_moved == 2 * x.nbytes
    np.testing.assert_allclose(checked.results[0], want, rtol=1e-5)
