"""The result of a function's ``status()``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jax_stitch.jit.programs.verdicts import Verdict
from jax_stitch.jit.tiers.program import Program, State
from jax_stitch.util.formatting import count

if TYPE_CHECKING:
    from jax_stitch.jit.primitive import Request
    from jax_stitch.jit.programs.history import Outcome

_RUNS = {
    State.MAKING: "jax.jit",
    State.TRYING: "jax.jit and stitched in turn",
    State.STITCHED: "stitched",
    State.PLAIN: "jax.jit",
    State.REFUSED: "nothing: it raises",
}


class Counts(Protocol):
    """What has stitched kernels."""

    @property
    def kernels(self) -> int:
        """Return launches of them in a call."""

    @property
    def replaced(self) -> int:
        """Return launches of XLA's kernels in whose place they are."""


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program of a function: for one set of types and static values, or one place inside another program."""

    types: str
    """Those of its arguments: ``"f32[8,128], f32[128]"``."""
    state: str
    """"making", "trying", "stitched", "plain" or "refused"; "part" inside another stitched function, which decides."""
    runs: str
    """What its calls run now."""
    detail: str
    """At what the background is, or why it runs what it runs."""
    kernels: int
    """Launches of stitched kernels in a call of the stitched program; 0 until there is one."""
    replaced: int
    """Launches of XLA's kernels in whose place they are."""
    plain_seconds: float | None
    """Median times of real calls, where they were measured."""
    stitched_seconds: float | None
    speedup: float | None
    """The mean of all that processes have measured."""
    spread: tuple[float, float] | None = None
    """Between which bounds that lies."""
    place: str = ""
    """The function that it is part of, where JAX traces that one: ``jax.jit``, another stitched one; "" for calls of
    its own."""
    planning_seconds: float = 0.0
    compiling_seconds: float = 0.0
    """That this process spent on it; 0 where it was on disk."""
    measuring_seconds: float = 0.0
    """Of calls that were timed."""

    def __str__(self) -> str:
        place = f" inside {self.place}" if self.place else ""
        spent = {
            "planning": self.planning_seconds,
            "compiling": self.compiling_seconds,
            "timed calls": self.measuring_seconds,
        }
        parts = [f"{seconds:.2f} s of {what}" for what, seconds in spent.items() if seconds]
        cost = f"; {', '.join(parts)}" if parts else ""
        return f"({self.types}){place}: runs {self.runs}; {self.detail}{cost}"


@dataclass(frozen=True, slots=True)
class Status:
    """What a stitched function runs now, what is being made, and what that brought."""

    function: str
    mode: str
    programs: tuple[ProgramStatus, ...]
    """One for each set of types it has been called with, and for each place inside another program."""
    reason: str = ""
    """Why all calls run as ``jax.jit``, where that is so whatever the arguments are: the JAX that is here, the mode."""

    @property
    def settled(self) -> bool:
        """Return whether nothing more goes on in the background, for calls like those made so far: what ``wait`` waits
        for.

        Calls may still run both programs in turn: ``decided`` says whether that is over.
        """
        return all(program.state != "making" for program in self.programs)

    @property
    def decided(self) -> bool:
        """Return whether nothing will change any more: also, both programs have been tried, on as many calls as it
        takes.
        """
        return self.settled and all(program.state != "trying" for program in self.programs)

    def __str__(self) -> str:
        head = f"{self.function} (mode {self.mode!r})"
        if self.reason:
            return f"{head}: runs jax.jit; {self.reason}"
        if not self.programs:
            return f"{head}: not called yet"
        return "\n".join([head, *(f"  {program}" for program in self.programs)])


def kernels_of(made: Counts) -> str:
    """Return how many kernels there are in place of how many launches."""
    launches = f" in place of {count(made.replaced, 'launch', 'launches')}" if made.replaced else ""
    return f"{count(made.kernels, 'kernel', 'kernels')}{launches}"


def status_of(program: Program) -> ProgramStatus:
    """Return a program as it is now."""
    verdict, made = program.verdict, program.made
    counts: Counts = verdict if verdict is not None and verdict.kernels else made
    return _status(
        verdict,
        types=program.types,
        state=program.state.value,
        runs=_RUNS[program.state],
        detail=detail_of(program),
        kernels=counts.kernels,
        replaced=counts.replaced,
        planning_seconds=made.planning,
        compiling_seconds=made.compiling,
        measuring_seconds=program.trial.seconds,
    )


def inside(origin: Request) -> tuple[ProgramStatus, ...]:
    """Return what came of a function where JAX lowered it: in other programs, and in ``mode="now"`` in its own."""
    from jax_stitch.jit.programs import history  # On a JAX that lacks a name, a status is shown as well.

    return tuple(map(_status_of_outcome, history.outcomes(origin)))


def _status_of_outcome(outcome: Outcome) -> ProgramStatus:
    if outcome.outer:
        state, runs = "part", f"as part of {outcome.outer}"
        detail = f"{outcome.outer}.status() says what becomes of it"
    elif outcome.stitched:
        state, runs = "stitched", _RUNS[State.STITCHED]
        known = outcome.verdict
        timed = known.reason if known is not None and known.stitched else "not timed against jax.jit"
        detail = f"{kernels_of(outcome)}, {timed}"
    else:
        state, runs, detail = "plain", _RUNS[State.PLAIN], outcome.reason
    return _status(
        outcome.verdict,
        types=outcome.types,
        state=state,
        runs=runs,
        detail=detail,
        kernels=outcome.kernels,
        replaced=outcome.replaced,
        place=outcome.place,
        planning_seconds=outcome.planning,
        compiling_seconds=outcome.compiling,
    )


def _status(verdict: Verdict | None, **facts: Any) -> ProgramStatus:
    """Return the status with what is measured taken from a verdict."""
    if verdict is None:
        return ProgramStatus(**facts, plain_seconds=None, stitched_seconds=None, speedup=None)
    return ProgramStatus(
        **facts,
        plain_seconds=verdict.plain_seconds,
        stitched_seconds=verdict.stitched_seconds,
        speedup=verdict.speedup,
        spread=verdict.spread,
    )


def detail_of(program: Program) -> str:
    """Return at what it is, or why it is what it is, in one clause."""
    if program.state is State.MAKING:
        return program.work.doing
    if program.state is State.TRYING:
        before = f", since earlier ones left it open: {program.before.reason}" if program.before is not None else ""
        return f"{kernels_of(program.made)}, {program.trial.calls} calls timed{before}"
    verdict = program.verdict
    if verdict is None:
        return str(program.failure)
    return f"{kernels_of(verdict)}, {verdict.reason}" if verdict.stitched else verdict.reason


def settled(
    function: str, mode: str, reason: str = "", programs: Callable[[], tuple[ProgramStatus, ...]] = tuple
) -> tuple[Callable[..., bool], Callable[[], Status]]:
    """Return ``wait`` and ``status`` of a function of which nothing goes on in the background; ``reason`` and
    ``programs`` as in ``Status``.
    """

    def wait(timeout: float | None = None) -> bool:
        """Return True: there is nothing to wait for."""
        del timeout
        return True

    def status() -> Status:
        """Return what became of the function so far."""
        return Status(function, mode, programs(), reason)

    return wait, status
