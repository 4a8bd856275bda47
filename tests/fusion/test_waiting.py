"""Blocks that wait for each other: not in programs with collectives, and nowhere for ever."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlo_parser
from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.frontend.capture import capture
from jax_stitch.graph.collectives import has_collectives
from jax_stitch.jit.tune.resident import all_resident
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.schedule.residency import residency
from tests.fusion import forced

X = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)


def standardised(x: Any) -> Any:
    """Two phases over the whole array, which only a barrier keeps apart."""
    return (x - x.mean()) / x.std()


def small_end(x: Any) -> Any:
    """A second phase that one block does alone."""
    return (x * x).sum()


FUNCTIONS = {"standardised": standardised, "small end": small_end}


def with_all_reduce(text: str) -> str:
    """The program with a sum over devices beside all else."""
    adder = "%sum_of (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
    adder += "  ROOT %s = f32[] add(%a, %b)\n}\n\n"
    head, entry, body = text.partition("ENTRY ")
    first, rest = body.split("\n", 1)
    parameter = re.search(r"%(\S+) = (f32\[[\d,]*\])\S* parameter\(0\)", rest)
    assert parameter is not None
    added = f"  %everywhere = {parameter[2]} all-reduce(%{parameter[1]}), channel_id=1"
    added += ", replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum_of\n"
    at = rest.index("ROOT ")
    at = rest.rindex("\n", 0, at) + 1
    return head + adder + entry + first + "\n" + rest[:at] + added + rest[at:]


def waiting(stitched: Stitched) -> list[str]:
    kernels = [k.scheduled for k in stitched.kernels]
    held = [(k, k.residency) for k in kernels]
    return [k.name for k, r in held if r is not None and (r.last_block_from > 1 or any(p.spread for p in k.parts))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_collectives_no_block_waits_for_another(name: str) -> None:
    """A kernel of NCCL that holds multiprocessors, and blocks of ours that wait for those: neither ever ends."""
    h200 = forced.device("h200")
    text = forced.hlo_of(FUNCTIONS[name], X)
    alone = forced.stitched(text, h200)
    beside = forced.stitched(text, replace(h200, blocks_may_wait=False))
    assert not waiting(beside) and beside.kernels
    if name == "standardised":
        assert waiting(alone) and len(beside.kernels) > len(alone.kernels)
    else:
        assert len(beside.kernels) == len(alone.kernels) == 1, "the last block to arrive waits for nobody"
    assert set().union(*(k.scheduled.outputs for k in beside.kernels)) >= {
        i for k in alone.kernels for i in k.scheduled.outputs if i in alone.plan.graph.results
    }


def test_collectives_are_found_in_the_program() -> None:
    text = forced.hlo_of(standardised, X)
    assert not has_collectives(hlo_parser.parse(text))
    beside = with_all_reduce(text)
    assert has_collectives(hlo_parser.parse(beside))
    assert has_collectives(hlo_parser.parse(beside.replace(" all-reduce(", " all-reduce-start(")))
    assert waiting(forced.stitched(text, forced.device("h200")))
    assert not waiting(forced.stitched(beside, forced.device("h200")))


def test_one_that_waits_even_so_is_left_to_xla() -> None:
    """Whoever schedules again later must not bring it back."""
    h200 = forced.device("h200")
    stitched = forced.stitched(forced.hlo_of(standardised, X), h200)
    compiled = tuple(compile_ptx(source, "sm_90") for source in stitched.sources)
    assert all_resident(stitched, compiled)[0] is stitched
    beside = replace(stitched, device=replace(h200, blocks_may_wait=False))
    left, kernels = all_resident(beside, compiled)
    assert not waiting(left) and len(kernels) == len(left.sources)
    assert any("beside collectives" in note for note in left.plan.notes)


def test_every_wait_has_an_end() -> None:
    """A launch that does not fit the device waited for ever; now it fails, with a message. It costs no registers."""
    stitched = forced.stitched(forced.hlo_of(standardised, X), forced.device("h200"))
    (kernel,) = (k for k in stitched.kernels if k.scheduled.name in waiting(stitched))
    made = compile_ptx(kernel.source, "sm_90")
    spins = made.ptx.count("nanosleep.u32")
    assert spins and made.ptx.count("%globaltimer") == 2 * spins and "__assertfail" in made.ptx
    assert (
        "has come to the barrier within 30 s" in bytes(map(int, re.findall(r"\d+", _longest_text(made.ptx)))).decode()
    )
    assert made.stack_bytes == 0
    found = residency(kernel.scheduled, stitched.device, None)
    assert made.registers * kernel.source.block * found.per_multiprocessor <= 65536


def test_where_nobody_waits_the_last_block_takes_no_registers_from_the_others() -> None:
    """A sum of many sums: one block's last step had every partial result in registers at once, and since none waits for
    another the compiler was given them all: one block of eight had room on a multiprocessor.
    """
    shapes = [jax.ShapeDtypeStruct((768 + 8 * k, 768), jnp.float32) for k in range(24)]
    device = devices.get("h200")
    captured = capture(lambda *xs: jnp.sqrt(sum(jnp.sum(x * x) for x in xs)), shapes, device)
    (kernel,) = fit(stitch_capture(captured, device), "sm_90").kernels
    assert kernel.scheduled.residency is not None and kernel.scheduled.residency.last_block_from == 1
    made = compile_ptx(kernel.source, "sm_90")
    assert made.registers * kernel.source.block <= 65536 // 2 and made.spill_bytes == 0


def _longest_text(ptx: str) -> str:
    texts = re.findall(r"\.b8 [^\n]*\[\d+\] = \{([\d, ]+)\}", ptx)
    return max(texts, key=len)
