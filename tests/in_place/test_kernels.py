"""Kernels written over their inputs: in the checking mode no thread sees what another has written, and the results are
the same to the bit. Catches: a pair that is taken for safe and is not.
"""

from __future__ import annotations

from random import Random

import jax
import pytest

from jax_stitch.emit import emit
from jax_stitch.pipeline import Stitched
from tests.drawn import program
from tests.fusion import forced
from tests.in_place import oracle
from tests.in_place.programs import PROGRAMS

DEVICES = {
    "h200": forced.device("h200"),
    "small": forced.device("h200", multiprocessors=2, shared_per_block=2048, shared_per_block_optin=16384),
}


def kernels(name: str, device: str) -> Stitched:
    made = PROGRAMS[name]
    return forced.stitched(forced.hlo_of(made.fun, *made.args()), DEVICES[device])


def faults(made: Stitched, seed: int) -> tuple[int, list[str]]:
    """How many pairs are written in place, and what is wrong with them."""
    count, found = 0, []
    for kernel in made.kernels:
        arrays = oracle.arguments(kernel.source, seed)
        for reuse in oracle.pairs(kernel):
            over = emit(kernel.scheduled, [reuse])
            if not over.aliases:
                continue
            count += 1
            wrong = oracle.fault(kernel.source, over, arrays)
            if wrong is not None:
                found.append(f"input {reuse.input} under output {reuse.output} of {over.name}: {wrong}\n{over.text}")
    return count, found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_in_place_is_right(name: str, device: str) -> None:
    _, found = faults(kernels(name, device), 0)
    assert not found, found[0]


@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.naive_is_wrong])
def test_the_same_without_a_thought_is_wrong(name: str) -> None:
    """Else the test above would not notice a check that lets everything pass."""
    made = kernels(name, "h200")
    wrong = [
        oracle.fault(k.source, oracle.naive(k, reuse), oracle.arguments(k.source, 0))
        for k in made.kernels
        for reuse in oracle.pairs(k)
    ]
    assert any(wrong)


MUST = ("elementwise", "adam", "average", "softmax", "long softmax", "vector softmax", "layer norm", "bias", "half")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MUST)
def test_these_are_written_in_place(name: str, device: str) -> None:
    """A check that refuses everything would pass the tests above, and copy everything."""
    assert faults(kernels(name, device), 0)[0]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    rng = Random(seed)
    with jax.enable_x64(True):
        made = program(rng, steps=8)
        text = forced.hlo_of(made.fun, *made.args)
        for target in DEVICES.values():
            _, found = faults(forced.stitched(text, target, seed), seed)
            assert not found, f"{found[0]}\n{made!r}"
