"""Timing functions against each other: in one process and in turn, so that a busy machine slows all of them alike.

What takes less than ``SHORT`` is called many times inside one program: a call from Python takes microseconds itself.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

SHORT = 1e-3
"""Seconds. The calls of anything shorter are made by a loop inside one program."""

_SAMPLE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call of one function, a value for each round."""

    samples: tuple[float, ...]
    calls: int
    """Calls in each sample."""
    in_program: bool = False
    """Whether they were made by a loop inside one program, and not from Python."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Return the interquartile range over the median: 0.02 is a quiet machine, 0.3 a measurement to repeat."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.median


def time_in_turn(
    functions: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 15,
    seconds: float = 3.0,
    sample_seconds: float = _SAMPLE_SECONDS,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Time each function, which takes no argument and returns JAX arrays, a sample per round.

    Every function is called twice first, to compile and to warm up. A sample is as many calls as take
    ``sample_seconds``. There are at most ``rounds`` rounds, fewer (at least 3) where they would take longer than
    ``seconds`` in all. Every second round runs in reverse order, so that no function always follows the same other.
    ``progress`` is told the number of rounds done.
    """
    once: dict[str, float] = {name: _warm(function) for name, function in functions.items()}
    calls = {name: max(1, math.ceil(sample_seconds / t)) for name, t in once.items()}
    per_round = sum(once[name] * calls[name] for name in functions)
    rounds = max(3, min(rounds, int(seconds / per_round)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for done in range(rounds):
            names = list(functions)[:: 1 if done % 2 == 0 else -1]
            for name in names:
                samples[name].append(_sample(functions[name], calls[name]))
            if progress is not None:
                progress(done + 1)
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(tuple(samples[name]), calls[name]) for name in functions}


def time_programs(
    functions: Mapping[str, Callable[..., Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    rounds: int = 15,
    seconds: float = 3.0,
    others: Sequence[tuple[Any, ...]] = (),
    donating: bool = False,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Timing]:
    """Time functions, such as ``jax.jit`` returns, on the same arguments; see ``time_in_turn``.

    If any of them is done in less than ``SHORT``, all are timed by programs that call them again and again. ``others``
    are further arguments like ``args``: each call has the next, so that it does not find its own in the cache. Where
    functions are ``donating`` arguments, each call has copies, made before its time; those programs donate nothing.
    Everything is compiled before ``alone`` is entered, in which the calls are timed.
    """
    named = dict(kwargs or {})
    calls: dict[str, Callable[[], Any]]
    if donating:
        calls = {name: Donating(function, (args, *others), named) for name, function in functions.items()}
    else:
        calls = {name: _rotating(function, (args, *others), named) for name, function in functions.items()}
    once = {name: _warm(call) for name, call in calls.items()}
    if min(once.values()) >= SHORT:
        with alone():
            return time_in_turn(calls, rounds=rounds, seconds=seconds, sample_seconds=_SAMPLE_SECONDS)
    trips = {name: max(1, math.ceil(_SAMPLE_SECONDS / t)) for name, t in once.items()}
    programs = {name: repeated(function, args, named, trips[name], others) for name, function in functions.items()}
    for program in programs.values():
        _warm(program)
    with alone():
        timings = time_in_turn(programs, rounds=rounds, seconds=seconds, sample_seconds=0.0)
    return {
        name: Timing(tuple(sample / trips[name] for sample in timing.samples), trips[name], in_program=True)
        for name, timing in timings.items()
    }


def repeated(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    trips: int,
    others: Sequence[tuple[Any, ...]] = (),
) -> Callable[[], Any]:
    """Return a program of its own that calls ``function(*args, **kwargs)`` ``trips`` times and returns the last
    results.

    Each call waits for the one before: a barrier hands on the arguments together with its results, so that XLA can
    neither take the call out of the loop nor leave any out. With ``others`` each call has the next arguments: on a CPU,
    which may run calls at once that do not need each other's results, a branch in the loop tells which; on a GPU, where
    the host would wait for each branch, a step of the loop makes all of these calls, one after the other.
    """
    leaves, structure = jax.tree.flatten((args, dict(kwargs)))
    varying = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]
    sets = [leaves, *(jax.tree.leaves((other, dict(kwargs))) for other in others)]

    def once(arrays: list[Any]) -> Any:
        given = dict(zip(varying, arrays, strict=True))
        args, kwargs = jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        return function(*args, **kwargs)

    def program(sets: list[list[Any]]) -> Any:
        def call(carry: Any, turn: int) -> Any:
            sets, _ = jax.lax.optimization_barrier(carry)
            return sets, once(sets[turn])

        def branch(trip: Any, carry: Any) -> Any:
            sets, _ = jax.lax.optimization_barrier(carry)
            return sets, jax.lax.switch(trip % len(sets), [functools.partial(once, arrays) for arrays in sets])

        empty = jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), jax.eval_shape(once, sets[0]))
        carry = sets, empty
        if len(sets) > 1 and _runs_calls_at_once():
            return jax.lax.fori_loop(0, trips, branch, carry)[1]
        steps, rest = divmod(trips, len(sets))
        carry = jax.lax.fori_loop(0, steps, lambda _, carry: functools.reduce(call, range(len(sets)), carry), carry)
        return functools.reduce(call, range(rest), carry)[1]

    given = [[arrays[i] for i in varying] for arrays in sets]
    lowered = jax.jit(program).lower(given)
    has_own_loop = lowered.as_text().count("stablehlo.while") > 1
    compiled = lowered.compile(None if has_own_loop or not _runs_calls_at_once() else _NO_HOISTING)
    return functools.partial(compiled, given)


_NO_HOISTING = {"xla_disable_hlo_passes": "small-while-loop-hoisting"}
"""Keep XLA:CPU from making one function of the loop that measures. In it a kernel is not what it is outside of loops,
and may take XLA over 25 minutes to compile: the rotations of a random key do. Loops that are measured stay as they are.
"""


def _runs_calls_at_once() -> bool:
    """Return whether JAX's device is one that runs operations at once where it can; others run them in order."""
    return jax.default_backend() == "cpu"


def _rotating(
    function: Callable[..., Any], sets: Sequence[tuple[Any, ...]], kwargs: Mapping[str, Any]
) -> Callable[[], Any]:
    """Call a function with each set of arguments in turn."""
    if len(sets) == 1:
        return functools.partial(function, *sets[0], **kwargs)
    turns = itertools.cycle(sets)
    return lambda: function(*next(turns), **kwargs)


def copied(arguments: Any) -> Any:
    """Return a pytree with copies of its arrays, which may be given away."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, arguments)


class Donating:
    """Calls a function with copies of each set of arguments in turn; ``prepare`` makes those for the next calls."""

    def __init__(
        self, function: Callable[..., Any], sets: Sequence[tuple[Any, ...]], kwargs: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._turns = itertools.cycle([(args, dict(kwargs)) for args in sets])
        self._ready: list[Any] = []

    def prepare(self, calls: int) -> None:
        while len(self._ready) < calls:
            self._ready.append(copied(next(self._turns)))
        jax.block_until_ready([jax.tree.leaves(given) for given in self._ready])

    def __call__(self) -> Any:
        self.prepare(1)
        args, kwargs = self._ready.pop()
        return self._function(*args, **kwargs)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers, of which there is at least one."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def _warm(function: Callable[[], Any]) -> float:
    jax.block_until_ready(function())
    return max(_sample(function, 1), 1e-7)


def _sample(function: Callable[[], Any], calls: int) -> float:
    """Return seconds per call.

    On a CPU each call is waited for: JAX would run independent calls at once; a GPU runs them one after another.
    """
    if isinstance(function, Donating):
        function.prepare(calls)
    if calls == 1 or jax.default_backend() == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(function())
        return (time.perf_counter() - start) / calls
    start = time.perf_counter()
    for _ in range(calls):
        result = function()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls
