"""A planted fault of each kind is found, where it is, and nothing else; and what looks like one is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from jax_stitch.checking import Kind, check
from jax_stitch.emit import KernelSource
from jax_stitch.graph.model import TensorType
from tests.checking.kernels import FLOATS, kernel, line_of

X = np.arange(FLOATS, dtype=np.float32)
ALL = "for (int i = t; i < 256; i += 64) out0[i] = in0[i];"


@dataclass(frozen=True)
class Planted:
    """A faulty kernel and what is to be said of it."""

    kind: Kind
    source: KernelSource
    thread: int | None = None
    block: int = 0
    buffer: str | None = None
    index: int | None = None
    count: int | None = None


def one_float(n: int) -> tuple[TensorType, ...]:
    return (TensorType("f32", (n,)),)


PLANTED = {
    "global read past the end": Planted(
        Kind.OUT_OF_BOUNDS,
        kernel("  for (int i = t; i < 256; i += 64) out0[i] = in0[i + (i == 255)]; // here"),
        thread=63,
        buffer="in0",
        index=256,
    ),
    "global write before the start": Planted(
        Kind.OUT_OF_BOUNDS, kernel(f"  {ALL}\n  if (t == 5) out0[-3] = 0; // here"), 5, 0, "out0", -3
    ),
    "far away": Planted(
        Kind.OUT_OF_BOUNDS,
        kernel(
            f"  {ALL}\n  if (t == 1) out0[1] = *reinterpret_cast<const float*>(uint64_t(in0) + (1ull << 44)); // here"
        ),
        thread=1,
    ),
    "shared past the end": Planted(
        Kind.OUT_OF_BOUNDS, kernel(f"  {ALL}\n  shared[t + 193] = 1; // here"), 63, 0, "shared memory", 1024
    ),
    "misaligned global": Planted(
        Kind.MISALIGNED,
        kernel(f"  {ALL}\n  if (t == 3) out0[3] = *reinterpret_cast<const double*>(in0 + 7); // here"),
        *(3, 0, "in0", 7),
    ),
    "misaligned shared": Planted(
        Kind.MISALIGNED,
        kernel(f"  {ALL}\n  if (t == 2) *reinterpret_cast<int*>(memory + 6) = 1; // here"),
        *(2, 0, "shared memory", 6),
    ),
    "shared never written": Planted(
        Kind.UNWRITTEN,
        kernel(f"  shared[t] = t;\n  ST_SYNC\n  {ALL}\n  if (t == 9) out0[9] = shared[100]; // here"),
        *(9, 0, "shared memory", 400),
    ),
    "output read before it is written": Planted(
        Kind.UNWRITTEN, kernel("  for (int i = t; i < 256; i += 64) out0[i] += 1; // here"), 0, 0, "out0", 0, 256
    ),
    "one byte of a word never written": Planted(
        Kind.UNWRITTEN,
        kernel(
            f"""  if (t == 0) memory[0] = memory[1] = memory[3] = 1;
  ST_SYNC
  {ALL}
  if (t == 0) out0[0] = shared[0]; // here"""
        ),
        *(0, 0, "shared memory", 0),
    ),
    "scratch of another block": Planted(
        Kind.UNWRITTEN,
        kernel(
            "  out0[b * 64 + t] = in0[t];\n  if (b == 2 && t == 0) out0[128] = scratch0[1]; // here",
            grid=4,
            scratch=one_float(4),
        ),
        *(0, 2, "scratch0", 1),
    ),
    "write to an input": Planted(
        Kind.WRITTEN_INPUT, kernel(f"  {ALL}\n  if (t == 4) const_cast<float*>(in0)[8] = 1; // here"), 4, 0, "in0", 8
    ),
    "missing barrier": Planted(
        Kind.RACE,
        kernel(f"  {ALL}\n  shared[t] = t;\n  if (t == 40) out0[40] = shared[7]; // here"),
        *(40, 0, "shared memory", 28),
    ),
    "write after a read with no barrier": Planted(
        Kind.RACE,
        kernel(
            f"""  {ALL}
  shared[t] = t;
  ST_SYNC
  if (t < 2) out0[t] = shared[0];
  if (t == 63) shared[0] = 3; // here"""
        ),
        *(63, 0, "shared memory", 0),
    ),
    "two writers of one byte": Planted(
        Kind.RACE, kernel(f"  {ALL}\n  if (t == 3 || t == 50) memory[17] = 1; // here"), 50, 0, "shared memory", 17
    ),
    "within a warp": Planted(
        Kind.RACE,
        kernel(f"  {ALL}\n  shared[t] = t;\n  if (t == 2) out0[2] = shared[1]; // here"),
        *(2, 0, "shared memory", 4),
    ),
    "an atomic and a plain access": Planted(
        Kind.RACE,
        kernel(
            f"""  {ALL}
  if (t == 0) shared[0] = 0;
  ST_SYNC
  atomicAdd(&shared[0], 1.0f);
  if (t == 63) shared[0] = 2; // here"""
        ),
        *(63, 0, "shared memory", 0),
    ),
    "blocks that write one place": Planted(
        Kind.RACE,
        kernel(f"  if (b == 0) {{ {ALL} }}\n  if (t == 1 && b == 3) out0[5] = 1; // here", grid=4),
        *(1, 3, "out0", 5),
    ),
    "a block reads what another writes": Planted(
        Kind.RACE,
        kernel("  out0[b * 64 + t] = in0[t];\n  if (t == 6 && b == 1) out0[70] = out0[0]; // here", grid=4),
        *(6, 1, "out0", 0),
    ),
    "phases with no barrier": Planted(
        Kind.RACE,
        kernel(
            "  out0[b * 64 + t] = in0[t];\n  __syncthreads();\n  if (b == 1) out1[t] = out0[64 - 64 * b + t]; // here",
            grid=4,
            phases=(4, 1),
            outputs=(TensorType("f32", (FLOATS,)), TensorType("f32", (64,))),
        ),
        *(0, 1, "out0", 0),
    ),
    "barrier in a branch": Planted(
        Kind.DIVERGENT_BARRIER, kernel(f"  {ALL}\n  if (t < 32) {{\n    __syncthreads(); // here\n  }}"), 0
    ),
    "different barriers": Planted(
        Kind.DIVERGENT_BARRIER,
        kernel(f"  {ALL}\n  if (t % 2) {{\n    __syncthreads();\n  }} else {{\n    __syncthreads(); // here\n  }}"),
        thread=0,
    ),
    "barriers in a loop of different lengths": Planted(
        Kind.DIVERGENT_BARRIER, kernel(f"  {ALL}\n  for (int i = 0; i < 2 + (t == 9); ++i) __syncthreads(); // here"), 9
    ),
    "shuffle in a branch": Planted(
        Kind.DIVERGENT_SHUFFLE,
        kernel(f"  {ALL}\n  if (t % 2) out0[t] = __shfl_xor_sync(0xffffffffu, t, 1); // here"),
        thread=1,
    ),
    "shuffle from a lane that is not there": Planted(
        Kind.DIVERGENT_SHUFFLE,
        kernel("  for (int i = t; i < 256; i += 16) out0[i] = __shfl_xor_sync(0xffffffffu, i, 16); // here", block=16),
        thread=0,
    ),
    "columns of a tile": Planted(
        Kind.BANK_CONFLICT,
        kernel(
            """  for (int i = 0; i < 16; ++i) shared[i * 32 + t % 32 + 512 * (t / 32)] = i;
  ST_SYNC
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += shared[t % 32 * 16 + i + 512 * (t / 32)]; // here
  for (int i = t; i < 256; i += 64) out0[i] = sum;""",
            shared_bytes=4096,
        ),
        buffer="shared memory",
        count=2 * 16 * 15,  # of 32 lanes 16 want each of two banks
    ),
    "blocks that wait for one that ends": Planted(
        Kind.NO_END,
        kernel(
            f"""  if (b == 0) {{ {ALL} }}
  if (b == 3) return;
  ST_GRID_BARRIER // wait""",
            grid=4,
            phases=(4, 1),
        ),
    ),
    "an output with a hole": Planted(
        Kind.MISSING_OUTPUT,
        kernel("  for (int i = t; i < 256; i += 64) if (i != 77) out0[i] = in0[i];"),
        *(-1, -1, "out0", 77),
    ),
    "a block of the cluster that may not have begun": Planted(
        Kind.ABSENT_BLOCK,
        kernel(
            f"  if (b == 1) {ALL}\n  if (b == 0) st::of_peer(shared, 1)[t] = 1; // here\n  st::cluster_barrier();",
            grid=2,
            cluster=2,
        ),
        *(0, 0, "shared memory", 0, 64),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_is_found(name: str) -> None:
    planted = PLANTED[name]
    findings = check(planted.source, [X]).findings
    assert [f.kind for f in findings.faults] == [planted.kind], str(findings)
    (fault,) = findings.faults
    assert fault.kernel == "planted"
    if "// here" in planted.source.text:
        assert fault.line == line_of(planted.source), str(findings)
    if planted.kind is not Kind.NO_END and planted.thread is not None:
        assert (fault.block, fault.thread) == (planted.block, planted.thread), str(findings)
    if planted.buffer is not None:
        assert fault.buffer == planted.buffer
    if planted.index is not None:
        assert fault.index == planted.index
    if planted.count is not None:
        assert fault.count == planted.count
    assert findings and "planted" in str(findings) and fault.message in str(findings)


def test_every_kind_is_planted() -> None:
    assert {p.kind for p in PLANTED.values()} == set(Kind)


SOUND = {
    "barriers": kernel(f"  {ALL}\n  shared[t] = t;\n  ST_SYNC\n  out0[t] = shared[63 - t];"),
    "every thread reads one place": kernel(f"  if (t == 0) shared[0] = 1;\n  ST_SYNC\n  {ALL}\n  out0[t] = shared[0];"),
    "neighbouring bytes": kernel(f"  {ALL}\n  memory[t] = t;\n  ST_SYNC\n  out0[t] = memory[63 - t];"),
    "atomics": kernel(
        f"  {ALL}\n  if (t == 0) shared[0] = 0;\n  ST_SYNC\n  atomicAdd(&shared[0], 1.0f);\n"
        "  ST_SYNC\n  out0[t] = shared[0];"
    ),
    "a barrier in a uniform branch": kernel(f"  {ALL}\n  if (in0[0] == 0) {{ ST_SYNC }} else {{ ST_SYNC }}"),
    "half a warp shuffles": kernel(f"  {ALL}\n  if (t % 32 < 16) out0[t] = __shfl_xor_sync(0xffffu, t, 1);"),
    "a vote": kernel(
        f"  {ALL}\n  const unsigned odd = __ballot_sync(0xffffffffu, t % 2);\n  if (odd == 0xaaaaaaaau) out0[t] = 1;"
    ),
    "static shared memory of several blocks": kernel(
        "  __shared__ int which[2];\n  if (t == 0) which[0] = b;\n  ST_SYNC\n  out0[b * 64 + t] = which[0];", grid=4
    ),
    "a tile with padding": kernel(
        """  for (int i = 0; i < 32; ++i) shared[i * 33 + t] = i;
  ST_SYNC
  for (int i = 0; i < 32; ++i) out0[t] = shared[t * 33 + i];
  for (int i = t; i < 256; i += 32) out0[i] = in0[i];""",
        block=32,
        shared_bytes=33 * 32 * 4,
    ),
    "grid barrier": kernel(
        "  out0[b * 64 + t] = in0[t];\n  ST_GRID_BARRIER\n  if (b == 1) out1[t] = out0[t];",
        grid=4,
        phases=(4, 1),
        outputs=(TensorType("f32", (FLOATS,)), TensorType("f32", (64,))),
    ),
    "last block": kernel(
        "  out0[b * 64 + t] = in0[t];\n  ST_LAST_BLOCK_ALONE\n  for (int i = t; i < 256; i += 64) out1[i] = out0[i];",
        grid=4,
        phases=(4, 1),
        outputs=(TensorType("f32", (FLOATS,)),) * 2,
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_is_sound(name: str) -> None:
    findings = check(SOUND[name], [X]).findings
    assert not findings, str(findings)


def test_what_was_found_first_and_how_often() -> None:
    findings = check(kernel(f"  {ALL}\n  shared[t + 200] = 1; // here"), [X]).findings
    (fault,) = findings.faults
    assert (fault.thread, fault.count) == (56, 8)
    assert "8 times" in str(fault)


def test_some_blocks() -> None:
    source = kernel("  out0[b * 64 + t] = in0[b];", grid=4)
    checked = check(source, [X], blocks=[1, 3])
    assert not checked.findings and checked.findings.blocks == 2
    np.testing.assert_array_equal(checked.outputs[0].reshape(4, 64)[:, 0], [0, 1, 0, 3])


def test_positions_past_32_bits() -> None:
    """A few blocks of a kernel whose input would not fit this machine."""
    n = (1 << 32) + 64
    source = kernel(
        "  out0[t] = in0[(uint64_t(1) << 32) + t];", inputs=(TensorType("u8", (n,)),), outputs=one_float(64)
    )
    checked = check(source, [None])
    assert not checked.findings and checked.findings.traffic[0].read == 2
    wrong = kernel(
        "  out0[t] = in0[int32_t(1u << 31) + t]; // here", inputs=(TensorType("u8", (n,)),), outputs=one_float(64)
    )
    (fault,) = check(wrong, [None]).findings.faults
    assert fault.kind is Kind.OUT_OF_BOUNDS


def test_arrays_have_to_be_the_kernels() -> None:
    source = SOUND["barriers"]
    with pytest.raises(ValueError, match="Input 0 of planted"):
        check(source, [X[:5]])
    with pytest.raises(ValueError, match="reads 1 arrays"):
        check(source, [])
    with pytest.raises(ValueError, match="all of its blocks"):
        check(SOUND["grid barrier"], [X], blocks=[0])
