"""The checking mode on clusters: what a kernel lacks is found, where it is, and nothing in one that is right."""

from __future__ import annotations

import numpy as np
import pytest

from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.checking import Findings, Kind, check
from jax_stitch.emit import KernelSource
from jax_stitch.util.values import replace
from tests.checking.kernels import FLOATS, kernel, line_of
from tests.clusters.laid_out import arguments, made

X = np.arange(FLOATS, dtype=np.float32)
WRITES = "if (b < 4) out0[64 * b + t] = shared[t];"
"""Blocks of two clusters of two, which write a quarter of the output each."""
NEXT = "st::of_peer(shared, (b + 1) % 2)"
MEET = "st::cluster_barrier();"


def clusters(body: str, size: int = 2) -> KernelSource:
    return kernel(body, grid=4, cluster=size)


def only(findings: Findings, kind: Kind) -> None:
    assert {f.kind for f in findings.faults} == {kind}, str(findings)


def test_blocks_that_meet_may_look_at_each_others_shared_memory() -> None:
    body = f"{MEET} {NEXT}[t] = in0[64 * b + t]; {MEET} {WRITES}"
    found = check(clusters(body), [X])
    assert not found.findings, str(found.findings)
    np.testing.assert_array_equal(found.outputs[0], X.reshape(2, 2, 64)[:, ::-1].reshape(-1))
    read = f"shared[t] = in0[64 * b + t]; {MEET} out0[64 * b + t] = {NEXT}[t]; {MEET}"
    found = check(clusters(read), [X])
    assert not found.findings, str(found.findings)
    np.testing.assert_array_equal(found.outputs[0], X.reshape(2, 2, 64)[:, ::-1].reshape(-1))


def test_the_barrier_before_what_others_wrote_is_missed() -> None:
    """A block's own barrier orders nothing that another does."""
    source = clusters(f"{MEET}\n {NEXT}[t] = in0[64 * b + t];\n __syncthreads();\n {WRITES} // here\n {MEET}")
    findings = check(source, [X]).findings
    assert Kind.RACE in {f.kind for f in findings.faults} <= {Kind.RACE, Kind.UNWRITTEN}, str(findings)
    assert {f.line for f in findings.faults} <= {line_of(source), line_of(source) - 2}
    assert any("of block" in f.message and f.buffer == "shared memory" for f in findings.faults)


def test_the_barrier_before_a_block_reuses_what_others_read_is_missed() -> None:
    source = clusters(
        f"shared[t] = in0[64 * b + t]; {MEET}\n out0[64 * b + t] = {NEXT}[t];\n shared[t] = 0; // here\n {MEET}"
    )
    findings = check(source, [X]).findings
    only(findings, Kind.RACE)


def test_a_block_that_may_not_have_begun() -> None:
    source = clusters(f"{NEXT}[t] = in0[64 * b + t]; // here\n {MEET} {WRITES}")
    findings = check(source, [X]).findings
    only(findings, Kind.ABSENT_BLOCK)
    (fault,) = findings.faults
    assert (fault.line, fault.block, fault.buffer, fault.index) == (line_of(source), 0, "shared memory", 0)
    assert "in block 1, which may not have begun" in fault.message


@pytest.mark.parametrize("block", [0, 1])
def test_a_block_that_may_have_ended(block: int) -> None:
    """Whichever of the two the checking mode happens to run first."""
    read = f"if (b == {block}) out0[0] = {NEXT}[t]; // here"
    source = clusters(f"{WRITES.replace('shared[t]', '0')} shared[t] = in0[t]; {MEET} if (t == 0) {{\n {read}\n }}")
    findings = check(replace(source, grid=2), [X]).findings
    absent = [f for f in findings.faults if f.kind is Kind.ABSENT_BLOCK]
    assert [f.line for f in absent] == [line_of(source)] and f"in block {1 - block}," in absent[0].message


def test_a_place_outside_of_the_other_blocks_shared_memory() -> None:
    source = clusters(f"{WRITES.replace('shared[t]', '0')} {MEET}\n {NEXT}[t + 193] = 0; // here\n {MEET}")
    findings = check(source, [X]).findings
    only(findings, Kind.OUT_OF_BOUNDS)
    assert findings.faults[0].index == 1024 and findings.faults[0].line == line_of(source)


def test_a_block_that_is_not_in_the_cluster() -> None:
    source = clusters(f"{WRITES.replace('shared[t]', '0')} {MEET}\n if (t == 0) st::of_peer(shared, b + 2); // here")
    findings = check(source, [X]).findings
    assert Kind.ABSENT_BLOCK in {f.kind for f in findings.faults}, str(findings)


def test_a_barrier_that_one_block_does_not_reach() -> None:
    source = clusters(f"{WRITES.replace('shared[t]', '0')}\n if (b % 2) {MEET} // here")
    findings = check(source, [X]).findings
    only(findings, Kind.DIVERGENT_BARRIER)
    assert findings.faults[0].line == line_of(source) and "of the cluster" in findings.faults[0].message


def test_a_barrier_that_some_threads_of_a_block_do_not_reach() -> None:
    source = clusters(f"{WRITES.replace('shared[t]', '0')}\n if (t < 32) {{ {MEET} }} else __syncthreads(); // here")
    assert Kind.DIVERGENT_BARRIER in {f.kind for f in check(source, [X]).findings.faults}


def test_whole_clusters_are_run() -> None:
    source = clusters(f"{MEET} {WRITES.replace('shared[t]', '0')}")
    assert check(source, [X], [3, 2]).findings.blocks == 2
    for blocks in ([1, 2], [0], [0, 1, 2], [0, 2, 1, 3]):
        with pytest.raises(ValueError, match="all blocks of each have to run"):
            check(source, [X], blocks)


MUTANTS = {
    "the barrier that all begin with": ("turn_(0) { cluster_barrier(); }", "turn_(0) {}", {Kind.ABSENT_BLOCK}),
    "the barrier of an exchange": (
        "threadIdx.x) = own;\n    cluster_barrier();",
        "threadIdx.x) = own;\n    __syncthreads();",
        {Kind.RACE},
    ),
    "the second set of places": ("turn_ ^= 1;", "", {Kind.RACE}),
}
"""What the runtime's exchange could forget."""


@pytest.mark.parametrize("name", MUTANTS)
def test_an_exchange_that_forgets_something_is_found(name: str) -> None:
    old, new, kinds = MUTANTS[name]
    args = arguments("layer_norm_gradient", 3, 500, np.float32)
    (made_kernel,) = made("layer_norm_gradient", args, 4).stitched.kernels
    source = made_kernel.source
    assert not [f for f in check(source, args).findings.faults if f.kind is not Kind.BANK_CONFLICT]
    header = (RUNTIME / "cluster.h").read_text()
    assert old in header
    changed = header.replace(old, new).replace("#pragma once", "").replace("Exchange", "Changed")
    for macro in ("ST_SPLIT_CLUSTER", "ST_REDUCE_CLUSTER"):
        changed = changed.replace(f"#define {macro}", f"#undef {macro}\n#define {macro}", 1)
    text = source.text.replace('#include "stitch.h"', '#include "stitch.h"\n' + changed, 1)
    findings = check(replace(source, text=text), args).findings
    assert kinds & {f.kind for f in findings.faults}, str(findings)
