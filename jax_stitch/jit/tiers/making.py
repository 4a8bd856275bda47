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

from jax_stitch.backend.compile import effort
from jax_stitch.frontend.capture import compiled
from jax_stitch.jit.lowering import agreeing, inner_operations_plain
from jax_stitch.jit.primitive import Request
from jax_stitch.jit.programs.fallback import StitchWarning, reason_of, warn, warnings_held
from jax_stitch.jit.programs.record import Record, recorded
from jax_stitch.jit.programs.verdicts import Verdict, keep
from jax_stitch.jit.rebuilt import background
from jax_stitch.jit.rehearsal import Rehearsal
from jax_stitch.jit.thread_state import JaxContext
from jax_stitch.jit.tiers.agreement import Agreement
from jax_stitch.jit.tiers.program import Program, State
from jax_stitch.jit.tiers.status import kernels_of
from jax_stitch.util import log, notices, store
from jax_stitch.util.options.template_error import TemplateError
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
        """Make the program, and say what came of it."""
        start = time.perf_counter()
        with warnings_held() as held, recorded(self.origin, measures=self.measures) as record:
            failure = self._compiled(record, held)
        self.program.made = record
        self.traced = self.plain = None
        if background.ending():
            self._end()
            return
        if self.program.agreement is not None:
            self._told(self.program.agreement, failure, held)
        elif failure is not None:
            self._failed(failure)
        else:
            self._made(held)
        self._say(time.perf_counter() - start)
        if (owner := self.owner()) is not None:
            owner.settle()
        self._end()

    def _say(self, seconds: float) -> None:
        """Tell the end of this work, and what follows."""
        program = self.program
        if program.state is State.TRYING and program.agreement is None:
            result = f"{kernels_of(program.made)} made in {seconds:.2f} s; the next calls time them against jax.jit"
        elif program.verdict is not None:
            result = f"{result_of(program.verdict)}; after {seconds:.2f} s in the background"
        else:
            result = f"ready, after {seconds:.2f} s in the background"
        _logger.log(log.level(), "%s: %s", program.call, result)
        notices.end(program.work)
        notices.tell_result(program.work, result)

    def rehearse(self, function: Callable[..., Any]) -> None:
        """Call the function, so that its next call takes JAX's fast path."""
        if self.rehearsal is None:
            return
        try:
            with self.context.entered():
                args, kwargs = self.rehearsal.arguments()
                jax.block_until_ready(function(*args, **kwargs))
        except Exception as failure:  # Of zeros, with NaNs looked for: the user's call is another one.
            _logger.debug("%s: not rehearsed", self.origin, exc_info=failure)

    def abandon(self, forked: bool) -> None:
        """Leave the program plain: nobody makes it."""
        self.traced = self.plain = None
        if forked:  # A thread that is not here may have locked it.
            self.program.after_fork()
        self.program.move(State.PLAIN, Verdict(False, "the process ended, or was forked, while it was made"))
        self.program.done.set()

    def _compiled(self, record: Record, held: list[tuple[Request, str]]) -> Exception | None:
        """Lower the program, and has XLA compile it if something of it is stitched. Return what went wrong."""
        assert self.traced is not None
        try:
            with self.context.entered(), self._effort(), self._compiled_before(), counted(self.program.work.count):
                lowered = self.traced.lower()
                if not held and (record.kernels or not self.measures):
                    self.program.work.doing = "compiled by XLA"
                    began = time.perf_counter()
                    lowered.compile()
                    record.compiling += time.perf_counter() - began
        except Exception as failure:
            _logger.debug("%s: not prepared in the background", self.origin, exc_info=failure)
            return failure
        return None

    @contextlib.contextmanager
    def _compiled_before(self) -> Iterator[None]:
        """Hold the program at hand that JAX runs meanwhile."""
        with inner_operations_plain(self.origin):  # As it was lowered.
            known = compiled.executable_of(self.plain, self.spent) if self.plain is not None else None
        before = compiled.at_hand.set(known)
        try:
            yield
        finally:
            compiled.at_hand.reset(before)

    @contextlib.contextmanager
    def _effort(self) -> Iterator[None]:
        """Work within the budget; and if processes are to agree, by a plan that all of them find."""
        agrees = self.program.agreement is not None
        before = effort.budget.set(self.budget), effort.planning.set(math.inf if agrees else effort.planning.get())
        agreed = agreeing.set(agrees)
        try:
            yield
        finally:
            agreeing.reset(agreed)
            effort.planning.reset(before[1])
            effort.budget.reset(before[0])

    def _made(self, held: list[tuple[Request, str]]) -> None:
        """Say what calls run now that it is made, or that there is nothing to make."""
        program, record = self.program, self.program.made
        program.keys = (*program.keys, *program.names)
        if held:
            program.move(State.PLAIN, Verdict(False, held[0][1]))
            self._warn(held)
        elif self.measures and not record.kernels:
            verdict = Verdict(False, record.left or "nothing of it could be stitched", programs=program.names)
            for key in program.keys if record.left is not None and record.lasting else ():
                keep(key, verdict)
            program.move(State.PLAIN, verdict)
        elif not self.measures:
            untimed = "taken as soon as it was made, and not timed"
            verdict = Verdict(True, untimed, kernels=record.kernels, replaced=record.replaced)
            program.move(State.STITCHED, verdict)
        elif (known := self.known or record.kept) is not None and not known.is_open:
            for key in program.keys:
                keep(key, known)
            program.move(State.STITCHED if known.stitched else State.PLAIN, known)
        else:
            program.before = known
            program.move(State.TRYING)

    def _told(self, agreement: Agreement, failure: Exception | None, held: list[tuple[Request, str]]) -> None:
        """Tell the other processes what came of it. None runs it before they have agreed on that."""
        program, record, reason = self.program, self.program.made, None
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
        program.done.set()


def result_of(verdict: Verdict) -> str:
    """Return a verdict in one line: what was found, and what calls run from now on."""
    return f"{kernels_of(verdict)}, {verdict.reason}" if verdict.stitched else f"stays jax.jit, {verdict.reason}"
