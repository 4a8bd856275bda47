"""What goes on in the background for one program: it is planned, compiled, and put into JAX's own caches."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

from jax_stitch import store
from jax_stitch.capture import compiled
from jax_stitch.compile import effort
from jax_stitch.jit.lowering import agreeing, inner_operations_plain
from jax_stitch.jit.primitive import Request
from jax_stitch.jit.rehearsal import Rehearsal
from jax_stitch.jit.thread_state import JaxContext
from jax_stitch.options.template_error import TemplateError
from jax_stitch.programs.fallback import StitchWarning, reason_of, warn, warnings_held
from jax_stitch.programs.record import Record, recorded
from jax_stitch.programs.verdicts import Verdict, keep
from jax_stitch.rebuilt import background
from jax_stitch.tiers.agreement import Agreement
from jax_stitch.tiers.program import Program, State
from jax_stitch.util import log, notices
from jax_stitch.util.progress import counted

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Making:
    """A job of ``background``."""

    program: Program
    owner: weakref.ref[Any]
    origin: Request
    context: JaxContext
    rehearsal: Rehearsal | None
    measures: bool
    """Whether real calls decide; else what is made is taken."""
    known: Verdict | None
    """What is known of the program, if its kernels have to be made again."""
    budget: float
    """Seconds of processor time that it may take."""
    traced: jax.stages.Traced | None = None
    """What there is to compile; None once that is done."""
    plain: jax.stages.Traced | None = None
    """What ``jax.jit`` has traced and runs meanwhile; None once that is of no more use."""
    spent: float = 0.0
    """Seconds of processor time that its first call took, if they were measured."""

    def run(self) -> None:
        start = time.perf_counter()
        with warnings_held() as held, recorded() as record:
            failure = self._compiled(record, held)
        self.traced = self.plain = None
        if background.ending():
            self._end()
            return
        if self.program.agreement is not None:
            self._told(self.program.agreement, failure, record, held)
        elif failure is not None:
            self._failed(failure)
        else:
            self._made(record, held)
        took = time.perf_counter() - start
        level, state = log.level(), self.program.state
        if state in (State.TRYING, State.STITCHED):
            _logger.log(level, "%s: ready, after %.2f s in the background", self.origin, took)
        elif self.program.verdict is not None:
            _logger.log(level, "%s: stays jax.jit, %s", self.origin, self.program.verdict.reason)
        if (owner := self.owner()) is not None:
            owner.settle()
        self._end()

    def rehearse(self, function: Callable[..., Any]) -> None:
        """Calls the function, so that its next call takes JAX's fast path."""
        if self.rehearsal is None:
            return
        try:
            with self.context.entered():
                args, kwargs = self.rehearsal.arguments()
                jax.block_until_ready(function(*args, **kwargs))
        except Exception as failure:  # Of zeros, with NaNs looked for: the user's call is another one.
            _logger.debug("%s: not rehearsed", self.origin, exc_info=failure)

    def abandon(self, forked: bool) -> None:
        self.traced = self.plain = None
        if forked:  # A thread that is not here may have locked it.
            self.program.after_fork()
        self.program.move(State.PLAIN, Verdict(False, "the process ended, or was forked, while it was made"))
        self.program.done.set()

    def _compiled(self, record: Record, held: list[tuple[Request, str]]) -> Exception | None:
        """Lowers the program, and has XLA compile it if something of it is stitched. Returns what went wrong."""
        assert self.traced is not None
        try:
            with self.context.entered(), self._effort(), self._compiled_before(), counted(self.program.work.count):
                lowered = self.traced.lower()
                if not held and (record.kernels or not self.measures):
                    self.program.work.doing = "compiled by XLA"
                    lowered.compile()
        except Exception as failure:
            _logger.debug("%s: not prepared in the background", self.origin, exc_info=failure)
            return failure
        return None

    @contextlib.contextmanager
    def _compiled_before(self) -> Iterator[None]:
        """With the program at hand that JAX runs meanwhile."""
        with inner_operations_plain():  # As it was lowered.
            known = compiled.executable_of(self.plain, self.spent) if self.plain is not None else None
        before = compiled.at_hand.set(known)
        try:
            yield
        finally:
            compiled.at_hand.reset(before)

    @contextlib.contextmanager
    def _effort(self) -> Iterator[None]:
        """Within the budget; and where processes are to agree, by a plan that all of them find."""
        agrees = self.program.agreement is not None
        before = effort.budget.set(self.budget), effort.planning.set(math.inf if agrees else effort.planning.get())
        agreed = agreeing.set(agrees)
        try:
            yield
        finally:
            agreeing.reset(agreed)
            effort.planning.reset(before[1])
            effort.budget.reset(before[0])

    def _made(self, record: Record, held: list[tuple[Request, str]]) -> None:
        program = self.program
        program.names, program.kernels, program.replaced = tuple(record.programs), record.kernels, record.replaced
        program.keys = (*program.keys, *program.names)
        if held:
            program.move(State.PLAIN, Verdict(False, held[0][1]))
            self._warn(held)
        elif self.measures and not record.kernels:
            verdict = Verdict(False, record.left or "nothing of it could be stitched")
            for key in program.keys if record.left is not None else ():
                keep(key, verdict)
            program.move(State.PLAIN, verdict)
        elif not self.measures:
            program.move(State.STITCHED, Verdict(True, "stitched as soon as it was made", kernels=record.kernels))
        elif (known := self.known or record.kept) is not None:
            for key in program.keys:
                keep(key, known)
            program.move(State.STITCHED if known.stitched else State.PLAIN, known)
        else:
            program.move(State.TRYING)

    def _told(
        self, agreement: Agreement, failure: Exception | None, record: Record, held: list[tuple[Request, str]]
    ) -> None:
        """Tells the other processes what came of it. None runs it before they have agreed on that."""
        program, reason = self.program, None
        program.names, program.kernels, program.replaced = tuple(record.programs), record.kernels, record.replaced
        if isinstance(failure, TemplateError) or (failure is not None and self.origin.strict):
            self._failed(failure)
            return
        if failure is not None:
            reason = reason_of(failure, self.origin)
            held = [(self.origin, reason)]
        elif held:
            reason = held[0][1]
        elif not record.kernels:
            reason = record.left or "nothing of it could be stitched"
        word = store.key(forms=record.forms) if reason is None else reason.splitlines()[0]
        program.move(State.TRYING)
        agreement.tell(word, ready=reason is None)
        self._warn(held)

    def _failed(self, failure: Exception) -> None:
        program = self.program
        if isinstance(failure, TemplateError):  # What the user asked for is not done otherwise.
            program.failure = failure
            program.move(State.REFUSED)
            return
        try:
            reason = reason_of(failure, self.origin)
            program.move(State.PLAIN, Verdict(False, reason.splitlines()[0]))
            warn(self.origin, reason)
        except Exception as raised:  # The function is strict, or warnings are errors.
            program.failure = raised
            program.move(State.REFUSED if self.origin.strict else State.PLAIN)

    def _warn(self, held: list[tuple[Request, str]]) -> None:
        try:
            for origin, reason in held:
                warn(origin, reason)
        except StitchWarning as failure:  # Where warnings are errors.
            self.program.failure = failure

    def _end(self) -> None:
        program = self.program
        if program.state is State.MAKING:
            program.move(State.PLAIN, Verdict(False, "the process ended while it was made"))
        notices.end(program.work)
        if program.state is not State.TRYING and program.verdict is not None:
            notices.tell_result(program.work, result_of(program.verdict))
        program.done.set()


def result_of(verdict: Verdict) -> str:
    """A verdict in one line: what was found, and what calls run from now on."""
    if not verdict.stitched:
        return f"stays jax.jit, {verdict.reason}"
    launches = f" in place of {verdict.replaced} launches" if verdict.replaced else ""
    return f"{verdict.kernels} kernels{launches}, {verdict.reason}"
