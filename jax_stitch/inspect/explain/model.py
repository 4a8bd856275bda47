"""What an explanation says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jax_stitch.fusion.delta_evaluator import Gain
from jax_stitch.util.formatting import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class Stop:
    """A place where XLA's fusion stopped beside an instruction: between the kernels of two instructions of which one
    reads the other.
    """

    producer: str
    consumer: str
    pass_: str
    """The pass of XLA that could have joined them: "instruction fusion", "fusion merger" or "multi-output fusion"."""
    reason: str
    joined: bool
    """Whether a stitched kernel holds both."""
    bytes: int
    """Between the two kernels through memory, which joining saves a read of."""

    def __str__(self) -> str:
        ours = "joined here" if self.joined else "apart here too"
        return f"{self.producer} -> {self.consumer}: {self.reason} ({self.pass_}; {format_bytes(self.bytes)}; {ours})"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A pattern that holds the instruction, and what became of it."""

    description: str
    instructions: tuple[str, ...]
    gain: Gain
    """By the delta-evaluator, over XLA's kernels."""
    refused: str
    """Why it can be no kernel by itself; empty where it can."""
    plan_seconds: float | None
    """What the best plan that takes it first is predicted to take; None where it can be no kernel, or where the graph
    is too large to plan it again.
    """
    behind: float | None
    """By how many seconds that plan is slower than the chosen one."""
    launches: int | None = None
    """Of that plan more than of the chosen one."""

    def __str__(self) -> str:
        gain = self.gain
        terms = (
            f"saves {_signed(gain.seconds)} (memory {_signed(gain.memory)}, launches {_signed(gain.calls)}, penalty "
            f"{_signed(gain.penalty)})"
        )
        if self.refused:
            return f"{self.description}: {terms}; {self.refused}"
        if self.behind is None:
            return f"{self.description}: {terms}"
        return f"{self.description}: {terms}; {self._verdict()}"

    def _verdict(self) -> str:
        assert self.behind is not None
        more = ""
        if self.launches:
            more = f", with {abs(self.launches)} launches {'more' if self.launches > 0 else 'fewer'}"
        if self.behind > 0:
            return f"the plan with it is slower by {format_seconds(self.behind)}{more}"
        if self.behind == 0 and not self.launches:
            return "the plan with it is predicted to take as long"
        faster = f"faster by {format_seconds(-self.behind)}" if self.behind else "as fast"
        return f"the plan with it is predicted {faster}{more}: the planner has not met it, or it moves more bytes"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``Plan.explain`` returns; ``print`` shows it."""

    instruction: str
    op: str
    source: str
    """``file:line`` of the user's function, or empty."""
    xla_kernel: str
    """The kernel of XLA that runs it; empty where it is none of its own."""
    kernels: tuple[str, ...]
    """The stitched kernels that compute it: more than one where it is computed again rather than read; none where it is
    left to XLA.
    """
    kernel_instructions: int
    """How many instructions the first of them has."""
    reason: str
    """Why it is left to XLA, or of a stitched one what its kernel saves."""
    chosen: Gain | None
    """By the delta-evaluator, of the patterns of its kernel together."""
    plan_seconds: float
    """What the chosen plan is predicted to take, library calls aside."""
    candidates: tuple[Alternative, ...]
    """The others that hold it, the closest first."""
    stops: tuple[Stop, ...]
    inside: str = ""
    """The loop or branch that it is in the body of, where that is one kernel as a whole or left to XLA as one."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        what = f"{self.instruction}: {self.op}" + (f", {self.source}" if self.source else "")
        yield what
        if self.inside:
            yield f"  in the body of {self.inside}, which is planned as one"
        if self.kernels:
            others = f"with {self.kernel_instructions - 1:,} others" if self.kernel_instructions > 1 else "alone"
            yield f"  stitched into {self.kernels[0]}, {others}: {self.reason}"
            for other in self.kernels[1:]:
                yield f"  computed again in {other} rather than read"
        else:
            yield f"  left to XLA: {self.reason}"
        yield f"  XLA's kernel for it: {self.xla_kernel or 'none'}"
        if self.stops:
            yield "  where XLA's fusion stopped beside it:"
            yield from (f"    {stop}" for stop in self.stops)
        elif self.xla_kernel:
            yield "  XLA's fusion stopped nowhere beside it: all that it reads and that reads it is in the same kernel"
        yield f"  candidates that hold it, of a plan that is predicted to take {format_seconds(self.plan_seconds)}:"
        if self.chosen is not None:
            yield f"    chosen: its part saves {_signed(self.chosen.seconds)} over XLA's kernels"
        yield from (f"    {candidate}" for candidate in self.candidates)
        if not self.candidates:
            yield "    no others" if self.chosen is not None else "    none"


def _signed(seconds: float) -> str:
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds) if seconds else "0"
