"""Generated kernels with something taken out of their text: what the generator could forget is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.checking import Kind, check
from jax_stitch.emit import KernelSource
from jax_stitch.util.values import replace
from tests.fusion import forced

H200 = forced.device("h200", multiprocessors=8)
Change = Callable[[str], str]


def kept_places(x: jax.Array) -> Any:
    s = x.reshape(-1, 4, x.shape[1]).sum(1)
    return s * 2, s.max(1), s - s[:, ::-1] * 3


def across_rows(x: jax.Array) -> Any:
    y = (x - x.mean(0)) / (1 + x.std(0))
    return y, (y * x).sum(0), y.max(1)


def total(x: jax.Array) -> Any:
    return jnp.log(jnp.exp(x).sum(1)).mean()


def softmax(x: jax.Array) -> Any:
    return jax.nn.softmax(x, 1)


def rows_fastest(x: jax.Array) -> Any:
    return jax.nn.softmax(x, 0)


def without(text: str) -> Change:
    return lambda source: source.replace(text, "")


def instead(old: str, new: str) -> Change:
    return lambda source: re.sub(old, new, source)


@dataclass(frozen=True)
class Mutant:
    """A change to the kernel of a function, and what is then to be found."""

    function: Callable[[Any], Any]
    dims: tuple[int, int]
    change: Change | None
    """Of the text; None: the launch gives it a quarter of its shared memory."""
    kinds: frozenset[Kind]


MUTANTS = {
    "a barrier between stages": Mutant(kept_places, (80, 50), without("ST_SYNC"), frozenset({Kind.RACE})),
    "the barrier of the grid": Mutant(across_rows, (3000, 130), without("ST_GRID_BARRIER"), frozenset({Kind.RACE})),
    "the wait for the last block": Mutant(
        total, (3000, 130), without("ST_LAST_BLOCK_ALONE"), frozenset({Kind.RACE, Kind.UNWRITTEN})
    ),
    "the one lane that stores": Mutant(kept_places, (80, 50), without("ST_FIRST_LANE"), frozenset({Kind.RACE})),
    "the end of a row": Mutant(
        softmax,
        (40, 101),
        instead(r"ST_EACH_PLACE_UNROLLED\(j, 101\)", "ST_EACH_PLACE_UNROLLED(j, 128)"),
        frozenset({Kind.OUT_OF_BOUNDS, Kind.RACE}),
    ),
    "a stretch of the output": Mutant(
        softmax,
        (40, 101),
        instead(r"\[j \+ row \* 101\] = ", "[row * 101] = "),
        frozenset({Kind.RACE, Kind.MISSING_OUTPUT}),
    ),
    "shared memory": Mutant(rows_fastest, (200, 70), None, frozenset({Kind.OUT_OF_BOUNDS})),
}


def source_of(mutant: Mutant, x: np.ndarray) -> KernelSource:
    with jax.enable_x64(True):
        (kernel,) = forced.stitched(forced.hlo_of(mutant.function, x), H200).kernels
    return kernel.source


@pytest.mark.parametrize("name", MUTANTS)
def test_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    x = np.random.default_rng(0).standard_normal(mutant.dims).astype(np.float32)
    source = source_of(mutant, x)
    assert not check(source, [x]).findings
    if mutant.change is None:
        changed = replace(source, shared_bytes=source.shared_bytes // 4)
    else:
        changed = replace(source, text=mutant.change(source.text))
        assert changed.text != source.text
    findings = check(changed, [x]).findings
    found = {f.kind for f in findings.faults}
    assert mutant.kinds & found, str(findings)
    assert all(f.line is not None for f in findings.faults if f.thread >= 0)
