"""Random JAX functions, stitched, against ``jax.jit``: as the public face stitches them, and with every pattern taken.

XLA often makes one kernel of a small function, which the planner then leaves alone. So most examples skip XLA's passes
and take every pattern that is local, whether or not it is worth a kernel, in an order that changes from one to the
next; the kernels are those for the CPU, for an H200, and for a GPU so small that blocks take several turns and keep
values in shared memory. Integers, truth values and floats that are short binary fractions must be equal, other floats
as close as two ways to round allow (``tests/drawn`` bounds that for each value). Where XLA's
compiled program differs, the operations run one by one decide.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock

import jax
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from jax_stitch import stitch, stitch_jit
from jax_stitch.backend.compile import host
from jax_stitch.devices import Device
from tests.drawn import Program, differences, program
from tests.fusion import forced
from tests.some import some

DEVICES: Sequence[Device] = (
    forced.device("cpu"),
    forced.device("cpu", multiprocessors=1),
    forced.device("h200"),
    forced.device("h200", multiprocessors=2, shared_per_block=2048, shared_per_block_optin=16384),
)
RANDOM = st.randoms(use_true_random=False)
CHECKS = {"deadline": None, "suppress_health_check": list(HealthCheck)}
FAST = settings(max_examples=some(6, of=18), derandomize=True, phases=(Phase.generate, Phase.shrink), **CHECKS)
LONG = settings(max_examples=1000, **CHECKS)


def assert_agrees(made: Program, got: Sequence[Any]) -> None:
    wrong = differences(made, got, jax.jit(made.fun)(*made.args))
    if wrong:  # Or XLA is: it merges a clamped slice of a clamped slice, for one.
        wrong = differences(made, got, made.fun(*made.args)) and wrong
    assert not wrong, "\n".join([*wrong, repr(made)])


def check_kernels(rng: Random, *, steps: int) -> None:
    with jax.enable_x64(True):
        made = program(rng, steps=steps)
        note(repr(made))
        text = forced.hlo_of(made.fun, *made.args)
        target = rng.choice(DEVICES)
        kernels = forced.stitched(text, target, rng.choice((None, rng.randrange(100))))
        assert_agrees(made, forced.run(kernels, made.args))


def check_sources(rng: Random, *, steps: int) -> None:
    """Every kernel of many plans can be laid out and written, and reads nothing that it has not kept before: many more
    programs than can be compiled and run.
    """
    with jax.enable_x64(True):
        made = program(rng, steps=steps)
        note(repr(made))
        text = forced.hlo_of(made.fun, *made.args)
        largest_first = rng.randrange(2)
        for n, target in enumerate(DEVICES):
            # Of two devices alike in kind, one takes the largest patterns first, the other any.
            forced.stitched(text, target, None if n % 2 == largest_first else rng.randrange(100))


@contextmanager
def nothing_falls_back() -> Iterator[None]:
    """Light compilation, and a function that runs unstitched is an error."""
    with mock.patch.object(host, "FLAGS", forced.LIGHT_FLAGS), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def check_public(rng: Random, *, steps: int) -> None:
    with jax.enable_x64(True), nothing_falls_back():
        made = program(rng, steps=steps)
        note(repr(made))
        ways: list[Callable[..., Any]] = [stitch_jit(made.fun), jax.jit(stitch(made.fun, schedule_device="h200"))]
        assert_agrees(made, ways[rng.randrange(2)](*made.args))
        with forced.everything_pays(rng.randrange(100)):
            assert_agrees(made, jax.jit(stitch(made.fun, schedule_device=rng.choice(("cpu", "h200"))))(*made.args))


@FAST
@given(RANDOM)
def test_kernels_of_small_functions(rng: Random) -> None:
    check_kernels(rng, steps=6)


@settings(FAST, max_examples=some(3, of=9))
@given(RANDOM)
def test_kernels_of_large_functions(rng: Random) -> None:
    check_kernels(rng, steps=20)


@settings(FAST, max_examples=some(9, of=28))
@given(RANDOM)
def test_sources(rng: Random) -> None:
    check_sources(rng, steps=20)


@settings(FAST, max_examples=some(3, of=9))
@given(RANDOM)
def test_the_public_face(rng: Random) -> None:
    check_public(rng, steps=12)


@pytest.mark.slow
@LONG
@given(RANDOM, st.integers(3, 30))
def test_kernels_of_many_functions(rng: Random, steps: int) -> None:
    check_kernels(rng, steps=steps)


@pytest.mark.slow
@LONG
@given(RANDOM, st.integers(3, 30))
def test_sources_of_many_functions(rng: Random, steps: int) -> None:
    check_sources(rng, steps=steps)


@pytest.mark.slow
@settings(LONG, max_examples=300)
@given(RANDOM, st.integers(3, 30))
def test_the_public_face_of_many_functions(rng: Random, steps: int) -> None:
    check_public(rng, steps=steps)
