"""The result of a function's ``status()``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jax_stitch.tiers.program import Program, State

_RUNS = {
    State.MAKING: "jax.jit",
    State.TRYING: "jax.jit and stitched in turn",
    State.STITCHED: "stitched",
    State.PLAIN: "jax.jit",
    State.REFUSED: "nothing: it raises",
}


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program of a function: for one set of types and static values."""

    types: str
    """Those of its arguments: ``"f32[8,128], f32[128]"``."""
    state: str
    """"making", "trying", "stitched", "plain" or "refused"."""
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

    def __str__(self) -> str:
        return f"({self.types}): runs {self.runs}; {self.detail}"


@dataclass(frozen=True, slots=True)
class Status:
    """What a stitched function runs now, what is being made, and what that brought."""

    function: str
    mode: str
    programs: tuple[ProgramStatus, ...]
    """One for each set of types it has been called with; none in other modes than "auto" and "async"."""
    reason: str = ""
    """Why all calls run as ``jax.jit``, where that is so whatever the arguments are: the JAX that is here."""

    @property
    def settled(self) -> bool:
        """Whether nothing more goes on in the background, for calls like those made so far: what ``wait`` waits for.

        Calls may still run both programs in turn: ``decided`` says whether that is over.
        """
        return all(program.state != "making" for program in self.programs)

    @property
    def decided(self) -> bool:
        """Whether nothing will change any more: also, both programs have been tried, on as many calls as it takes."""
        return self.settled and all(program.state != "trying" for program in self.programs)

    def __str__(self) -> str:
        head = f"{self.function} (mode {self.mode!r})"
        if self.reason:
            return f"{head}: runs jax.jit; {self.reason}"
        if not self.programs:
            return f"{head}: " + ("not called yet" if self.mode in ("auto", "async") else "nothing is left to decide")
        return "\n".join([head, *(f"  {program}" for program in self.programs)])


def status_of(program: Program) -> ProgramStatus:
    """A program as it is now."""
    verdict = program.verdict
    return ProgramStatus(
        types=program.types,
        state=program.state.value,
        runs=_RUNS[program.state],
        detail=detail_of(program),
        kernels=verdict.kernels if verdict is not None else program.kernels,
        replaced=verdict.replaced if verdict is not None else program.replaced,
        plain_seconds=verdict.plain_seconds if verdict is not None else None,
        stitched_seconds=verdict.stitched_seconds if verdict is not None else None,
        speedup=verdict.speedup if verdict is not None else None,
    )


def detail_of(program: Program) -> str:
    """At what it is, or why it is what it is, in one clause."""
    if program.state is State.MAKING:
        return program.work.doing
    if program.state is State.TRYING:
        return f"{program.trial.calls} calls timed"
    return program.verdict.reason if program.verdict is not None else str(program.failure)


def settled(function: str, mode: str, reason: str = "") -> tuple[Callable[..., bool], Callable[[], Status]]:
    """Return ``wait`` and ``status`` of a function of which nothing goes on in the background; ``reason`` as in
    ``Status``.
    """

    def wait(timeout: float | None = None) -> bool:
        """Return True: there is nothing to wait for."""
        del timeout
        return True

    def status() -> Status:
        """Return the mode: there is nothing else to tell."""
        return Status(function, mode, (), reason)

    return wait, status
