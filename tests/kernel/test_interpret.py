"""The interpreter, the host's C++ and XLA agree on kernels of every kind."""

from __future__ import annotations

import jax
import pytest

from tests.clusters import laid_out
from tests.fusion import forced
from tests.kernel import programs
from tests.kernel.__main__ import Record, disagreements
from tests.kernel.agreement import assert_close, flat, interpreted
from tests.kernel.drawn_kernels import WAYS


@pytest.mark.parametrize("device", programs.DEVICES)
@pytest.mark.parametrize("name", programs.NAMES)
def test_the_interpreter_agrees_with_xla(name: str, device: str) -> None:
    """Catches a statement that means another thing than the C++ that is written for it."""
    function, args = programs.example(name)
    made = forced.stitched(forced.hlo_of(function, *args), forced.device(device))
    assert_close(interpreted(made, jax.tree.leaves(args)), flat(jax.jit(function)(*args)), name)


@pytest.mark.parametrize("name", list(laid_out.FUNCTIONS))
def test_the_interpreter_agrees_with_xla_on_clusters(name: str) -> None:
    args = laid_out.arguments(name, 3, 5000, "float32")
    made = laid_out.made(name, args, 2).stitched
    assert_close(interpreted(made, args), flat(jax.jit(laid_out.FUNCTIONS[name])(*args)), name)


@pytest.mark.parametrize("first", range(0, 3 * len(WAYS), 2))
def test_random_programs_agree(first: int) -> None:
    """``python -m tests.kernel`` runs thousands."""
    record = Record(first, first)
    assert not disagreements(range(first, first + 2), record)
    assert record.patterns, record


@pytest.mark.parametrize("seed", [60, 90, 820])
def test_programs_that_disagreed_once(seed: int) -> None:
    """Of partial results of two values in shared memory one was written; what a scatter adds to was followed further
    where a CPU's results were priced, and refused.
    """
    assert not disagreements([seed], Record(seed, seed))
