"""``python -m bench.proofs``: what the structural check sees in PTX; SentryWard's verdicts where it is here."""

from __future__ import annotations

from typing import Any

import pytest

from bench.proofs import faults, sentryward
from bench.proofs.__main__ import structure, why_not
from bench.proofs.ptx import Kernel
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

HEAD = """.version 8.0
.target sm_90
.address_size 64

.visible .entry k(
\t.param .u64 k_param_0,
\t.param .u64 k_param_1
)
{
\t.reg .pred %p<9>;
\t.reg .b32 %r<9>;
\t.reg .b64 %rd<9>;
\tld.param.u64 %rd1, [k_param_0];
\tld.param.u64 %rd2, [k_param_1];
\tmov.u32 %r1, %tid.x;
\tmov.u32 %r2, %ctaid.x;
"""

EXCHANGE = """
#include "scalar.h"
extern "C" __global__ void exchange(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float kept[64];
  const int at = blockIdx.x * 64 + threadIdx.x;
  kept[threadIdx.x] = in[at] * 2;
  __syncthreads();
  out[at] = kept[63 - threadIdx.x];
}
"""


def body(text: str) -> str:
    return f"{HEAD}{text}\tret;\n}}\n"


UNIFORM = {
    "straight": "\tbar.sync 0;\n",
    "by the block": "\tsetp.eq.s32 %p1, %r2, 0;\n\t@%p1 bra $L1;\n\tbar.sync 0;\n$L1:\n",
    "behind what some skip": "\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $L1;\n\tmov.u32 %r3, 5;\n$L1:\n\tbar.sync 0;\n",
    "a loop of fixed length": (
        "\tmov.u32 %r3, 0;\n$L1:\n\tbar.sync 0;\n\tadd.s32 %r3, %r3, 1;\n\tsetp.lt.s32 %p1, %r3, 9;\n\t@%p1 bra $L1;\n"
    ),
    "by what all read from one place": (
        "\tmov.u32 %r3, 0;\n\tld.shared.u8 %r4, [%r3];\n\tsetp.eq.s32 %p1, %r4, 0;\n\t@%p1 ret;\n\tbar.sync 0;\n"
    ),
    "a register used again": (
        "\tmov.u32 %r3, %r1;\n\tmov.u32 %r3, 4;\n\tsetp.eq.s32 %p1, %r3, 0;\n\t@%p1 bra $L1;\n\tbar.sync 0;\n$L1:\n"
    ),
}

DIVERGENT = {
    "by the thread": "\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $L1;\n\tbar.sync 0;\n$L1:\n",
    "guarded": "\tsetp.eq.s32 %p1, %r1, 0;\n\t@!%p1 bar.sync 0;\n",
    "after some have left": "\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 ret;\n\tbar.sync 0;\n",
    "a loop as long as the thread's number": (
        "\tmov.u32 %r3, 0;\n$L1:\n\tbar.sync 0;\n\tadd.s32 %r3, %r3, 1;\n"
        "\tsetp.lt.s32 %p1, %r3, %r1;\n\t@%p1 bra $L1;\n"
    ),
    "by which way it came": (
        "\tmov.u32 %r3, 0;\n\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $L1;\n\tmov.u32 %r3, 5;\n$L1:\n"
        "\tsetp.eq.s32 %p2, %r3, 0;\n\t@%p2 bra $L2;\n\tbar.sync 0;\n$L2:\n"
    ),
    "by data": "\tld.global.nc.u32 %r3, [%rd3];\n\tsetp.eq.s32 %p1, %r3, 0;\n\t@%p1 bra $L1;\n\tbar.sync 0;\n$L1:\n",
}


@pytest.mark.parametrize("name", UNIFORM)
def test_barriers_that_all_threads_come_to(name: str) -> None:
    """A check that refused these would refuse kernels that are right."""
    assert structure(body(UNIFORM[name])) == ""


@pytest.mark.parametrize("name", DIVERGENT)
def test_barriers_that_some_threads_miss(name: str) -> None:
    """The others wait for ever."""
    text = DIVERGENT[name]
    if name == "by data":
        text = "\tmul.wide.u32 %rd4, %r1, 4;\n\tadd.s64 %rd3, %rd1, %rd4;\n" + text
    assert "bar.sync where not all threads come" in structure(body(text))


@pytest.mark.parametrize(
    ("read", "of", "stale"),
    [("ld.global.nc.f32", "%rd1", False), ("ld.global.nc.f32", "%rd2", True), ("ld.global.f32", "%rd2", False)],
)
@pytest.mark.parametrize("kept", [False, True], ids=["straight", "by way of local memory"])
def test_reads_past_the_caches_of_what_is_written(read: str, of: str, stale: bool, kept: bool) -> None:
    """Another block's store need not be seen; the pointer may come from a table of pointers."""
    pointer = "\tst.local.u64 [%rd8], %rd2;\n\tld.local.u64 %rd5, [%rd8];\n" if kept else "\tmov.u64 %rd5, %rd2;\n"
    text = "\tmul.wide.u32 %rd4, %r1, 4;\n\tadd.s64 %rd3, " + of + ", %rd4;\n" + pointer
    text += f"\tst.global.f32 [%rd5+4], 0f00000000;\n\t{read} %f1, [%rd3];\n"
    assert ("reads what the kernel writes" in structure(body(text))) == stale


def test_who_is_not_asked_about() -> None:
    assert why_not(body("\tatom.global.add.u32 %r3, [%rd1], 1;\n")) == "atomics"
    assert why_not(body("\tatom.global.add.u32 %r3, [%rd1], 1;\n\tnanosleep.u32 32;\n")) == "a barrier of all blocks"
    assert why_not(body("\tbar.sync 0;\n")) == ""


def exchange() -> str:
    tensors = (TensorType("f32", (128,)),)
    return compile_ptx(KernelSource("exchange", EXCHANGE, tensors, tensors, 2, 64, 0), "sm_90").ptx


def test_faults_are_planted_where_there_is_place_for_them() -> None:
    text = exchange()
    assert structure(text) == ""
    names = [name for name, _ in faults.planted(text)]
    assert set(names) == set(faults.SHOWN_BY_VERIFIER), "a kernel that reads nothing of its own has no stale read"
    assert all(changed != text and Kernel(changed).name == "exchange" for _, changed in faults.planted(text))
    assert all("not all threads" in structure(t) for name, t in faults.planted(text) if name.endswith("some threads"))


@pytest.mark.skipif(not sentryward.available(), reason="needs SentryWard (pip install sentryward)")
def test_the_verifier_proves_a_kernel_and_finds_each_fault() -> None:
    """One that passes everything, or nothing, is of no use."""
    launch = sentryward.Launch(2, 64)
    assert sentryward.prove(exchange(), "exchange", launch, 120).verdict == "proved"
    for name, text in faults.planted(exchange()):
        assert sentryward.prove(text, "exchange", launch, 120).verdict == "refused", name


@pytest.mark.parametrize(
    ("again", "verdict"),
    [
        (sentryward.Proof("proved"), "proved if"),
        (sentryward.Proof("refused", "potential_race"), "refused"),
        (sentryward.Proof("unsupported", "unsupported: dynamic_address", True), "in part"),
        (sentryward.Proof("unsupported", "unsupported: instruction"), "unsupported"),
        (sentryward.Proof("too long", "timeout"), "unsupported"),
    ],
)
def test_branches_on_data_are_asked_about_once_more(
    again: sentryward.Proof, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds for one way through a branch is no proof, and a fault found there is one."""
    asked: list[dict[str, object]] = []

    def answer(*arguments: Any) -> sentryward.Proof:
        asked.append(arguments[-1])
        return again if arguments[-1] else sentryward.Proof("unsupported", "unsupported: control_predicate_not_static")

    monkeypatch.setattr(sentryward, "_asked", answer)
    assert sentryward.prove("", "k", sentryward.Launch(1, 32), 1.0).verdict == verdict
    assert asked[0] == {} and asked[1]["data_branch_loop_iterations"] == sentryward.ITERATIONS


def test_less_is_asked_where_two_blocks_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof for one block is none for two, and says so."""

    def answer(_ptx: str, _entry: str, launch: sentryward.Launch, *_: Any) -> sentryward.Proof:
        unknown = sentryward.Proof("unsupported", "unsupported: dynamic_address", True)
        return sentryward.Proof("proved") if launch.grid == 1 else unknown

    monkeypatch.setattr(sentryward, "_asked", answer)
    assert sentryward.prove("", "k", sentryward.Launch(2, 32), 1.0).verdict == "one block"
    monkeypatch.setattr(sentryward, "_asked", lambda *_: sentryward.Proof("unsupported", "unsupported: address", True))
    assert sentryward.prove("", "k", sentryward.Launch(2, 32), 1.0).verdict == "in part"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"result": "race_free", "checks": {"memory": "passed", "synchronization": "passed"}}, "proved"),
        ({"result": "race_free", "checks": {"memory": "not_run", "synchronization": "passed"}}, "unsupported"),
        ({"result": "potential_race", "checks": {"memory": "failed", "synchronization": "passed"}}, "refused"),
        ({"result": "not_wellsynced", "checks": {"memory": "not_run", "synchronization": "failed"}}, "refused"),
        ({"result": "timeout", "checks": {}, "diagnostics": [{"code": "time_budget"}]}, "too long"),
        ({"result": "unsupported", "checks": {}, "diagnostics": [{"code": "instruction"}]}, "unsupported"),
    ],
)
def test_nothing_but_a_proof_is_one(found: dict[str, object], verdict: str) -> None:
    """Its exit status is 0 of findings too."""
    assert sentryward._proof(found).verdict == verdict
