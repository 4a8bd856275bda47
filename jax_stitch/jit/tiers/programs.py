"""The programs of a function: the plain and the stitched ``jax.jit`` of it, and which of them a call runs.

The first call with new types of arguments runs the plain one, unless an earlier process has found that the stitched
program is faster. Then that program is planned and compiled in the background, into JAX's own caches. Calls after that
run both in turn, until their times have shown which is faster.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jax_stitch.jit.dispatch import Answer, answer_of, dispatched, forget_types
from jax_stitch.jit.known_faults import Fault
from jax_stitch.jit.lowering import inner_operations_plain, several_processes
from jax_stitch.jit.primitive import Request, short_types
from jax_stitch.jit.programs import history
from jax_stitch.jit.programs.at_hand import at_hand, loaded
from jax_stitch.jit.programs.fallback import warn
from jax_stitch.jit.programs.record import recorded
from jax_stitch.jit.programs.verdicts import Verdict, keep, measured
from jax_stitch.jit.programs.verdicts import load as load_verdict
from jax_stitch.jit.rebuilt import background
from jax_stitch.jit.rehearsal import rehearsal
from jax_stitch.jit.thread_state import current_context, tracing
from jax_stitch.jit.tiers.agreement import Agreement
from jax_stitch.jit.tiers.attempt import can_repeat, timed
from jax_stitch.jit.tiers.budget import budget_for
from jax_stitch.jit.tiers.identity import call_name, look_around
from jax_stitch.jit.tiers.making import Making, result_of
from jax_stitch.jit.tiers.processes import agreement_before, agreement_on, spans_processes
from jax_stitch.jit.tiers.program import Program, State
from jax_stitch.jit.tiers.status import Status, inside, status_of
from jax_stitch.jit.tiers.trial import Kind
from jax_stitch.jit.tiers.variants import Variants, faults_in
from jax_stitch.util import log, log_output, notices
from jax_stitch.util.collecting import put_off
from jax_stitch.util.jax_names import ClosedJaxpr
from jax_stitch.util.notices import Work
from jax_stitch.util.options.modes import Mode
from jax_stitch.util.tracebacks import hide_frames
from jax_stitch.util.values import replace

_logger = logging.getLogger(__name__)

_OF_ONE_PROCESS = "of several processes it concerns only one, which may have to compute the very same as the others"


class Programs:
    """The plain and the stitched ``jax.jit`` of a function, and the states of its programs."""

    def __init__(
        self,
        traced: Any,
        stitched: Callable[..., Any],
        inline: Any,
        origin: Request,
        mode: Mode,
        jit_options: Mapping[str, Any],
    ) -> None:
        self._took = 0.0
        """Seconds of the longest first call under ``jax.jit``."""
        self._fun, self._inline, self._evict = traced, inline, inline.clear_cache
        self._variants = {k: Variants(f, jit_options) for k, f in ((Kind.PLAIN, traced), (Kind.STITCHED, stitched))}
        self._plain = self._variants[Kind.PLAIN].usual
        self._stitched = self._variants[Kind.STITCHED].usual
        self.function = dispatched(traced, self._plain, self._choose)
        """What users call."""
        self._origin, self._mode, self._jit_options = origin, mode, jit_options
        # By what JAX traces the function to, as long as JAX keeps that.
        self._programs: weakref.WeakKeyDictionary[ClosedJaxpr, Program] = weakref.WeakKeyDictionary()
        self.tracing = threading.RLock()
        # The first time these take some milliseconds, which the first call would miss.
        current_context()
        look_around()
        _all.add(self)

    def _choose(self, *args: Any, **kwargs: Any) -> Answer:
        """Run a call for which JAX's dispatch knows no program."""
        if tracing():
            return Answer(self._inline(*args, **kwargs))
        with self.tracing:  # JAX traces once where several threads call, but not where they trace.
            traced = self._plain.trace(*args, **kwargs)
        program = self._programs.get(traced.jaxpr)
        if program is None:
            return self._first(traced, args, kwargs)
        if program.agreement is not None and program.state in (State.MAKING, State.TRYING):
            return Answer(self._together(program, program.agreement, args, kwargs))
        match program.state:
            case State.REFUSED if program.failure is not None:
                raise program.failure
            case State.TRYING:
                return Answer(self._try(program, traced.jaxpr, args, kwargs))
            case State.STITCHED:
                return self._answer(Kind.STITCHED, program.faults, args, kwargs)
        return self._answer(Kind.PLAIN, program.faults, args, kwargs)

    def _answer(self, kind: Kind, faults: tuple[Fault, ...], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Run one of the two, and return its results with what JAX's dispatch is to run from now on."""
        jitted = self._variants[kind].without(faults)
        if kind is Kind.STITCHED:
            with recorded(self._origin):
                return answer_of(jitted, args, kwargs)
        with inner_operations_plain(self._origin):
            return answer_of(jitted, args, kwargs)

    def _run(self, kind: Kind, faults: tuple[Fault, ...], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one of the two, without telling JAX's dispatch."""
        jitted = self._variants[kind].without(faults)
        if kind is Kind.STITCHED:
            with recorded(self._origin):
                return jitted(*args, **kwargs)
        with inner_operations_plain(self._origin):
            return jitted(*args, **kwargs)

    def _faults(self, traced: jax.stages.Traced) -> tuple[Fault, ...]:
        """Return the faults of XLA that strike what JAX would run as plain ``jax.jit``."""
        with inner_operations_plain(self._origin):
            found = faults_in(traced)
        for fault in found:
            _logger.log(log.level(), "%s: %s (%s); %s", self._origin, fault.title, fault.place, fault.remedy)
        return found

    def _first(self, traced: jax.stages.Traced, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Answer the first call of a program: by the one that is known to be faster, if that is at hand; else plain."""
        log_output.follow()
        name = self._call_name(traced, args, kwargs)
        known = load_verdict(name) if name is not None else None
        if known is not None and not known.is_open and (held := loaded(known)):
            # What the function itself evaluates while it is traced is another program.
            with put_off():
                again = self._stitched.trace(*args, **kwargs)
            with at_hand(held), recorded(self._origin):
                if not faults_in(again):
                    program = self._program(traced, name)
                    _logger.log(log.level(), "%s: stitched from the start, %s", program.call, known.reason)
                    history.named(self._origin, known.programs)
                    self._add_done(traced.jaxpr, program, State.STITCHED, known)
                    return self._answer(Kind.STITCHED, (), args, kwargs)
        if several_processes() and (agreement := agreement_before(traced)) is not None:
            return Answer(self._again(traced, agreement, args, kwargs))
        start, worked = time.perf_counter(), time.process_time()
        faults = self._faults(traced)
        answer = self._answer(Kind.PLAIN, faults, args, kwargs)
        self._took = max(self._took, time.perf_counter() - start)
        spent = time.process_time() - worked
        counted = self._start(traced, name, known, faults, args, kwargs, answer.results, spent)
        return Answer(answer.results) if counted else answer

    def _start(
        self,
        traced: jax.stages.Traced,
        name: str | None,
        known: Verdict | None,
        faults: tuple[Fault, ...],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        spent: float,
    ) -> bool:
        """Note a new program, and has it made unless it is known to be slower; ``spent`` as in ``Making``. Whether its
        calls are counted, since several processes are to change over at the same one."""
        agreement = None
        if several_processes():
            agreement = agreement_on(traced) if spans_processes((args, kwargs, result)) else None
            known = None if agreement is not None else Verdict(False, _OF_ONE_PROCESS)
            name = self._name(traced, args, kwargs) if agreement is not None else None
        program = self._program(traced, name)
        program.agreement, program.faults = agreement, faults
        if agreement is not None and name is not None:
            agreement.known = kept = load_verdict(name)
            if kept is not None and not kept.stitched and not kept.is_open:
                program.move(State.TRYING)
                agreement.tell(kept.reason, ready=False)
                program.done.set()
                self._add(traced.jaxpr, program)
                return True
        if known is not None and not known.stitched and not known.is_open:
            history.named(self._origin, known.programs)
            self._add_done(traced.jaxpr, program, State.PLAIN, known)
            _logger.log(log.level(), "%s: stays jax.jit, %s", program.call, known.reason)
        elif self._add(traced.jaxpr, program):
            self._make(program, traced, known, spent, args, kwargs)
        return agreement is not None

    def _call_name(self, traced: jax.stages.Traced, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        return None if several_processes() else self._name(traced, args, kwargs)

    def _name(self, traced: jax.stages.Traced, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the name of its verdict in this process's cache."""
        if self._mode is not Mode.AUTO:
            return None
        with inner_operations_plain(self._origin), put_off():
            return call_name(traced, self._origin, jax.tree.leaves((args, kwargs)), self._jit_options)

    def _program(self, traced: jax.stages.Traced, name: str | None) -> Program:
        types = short_types(traced.jaxpr.in_avals)
        work = Work(f"{self._origin.name}({types})", "calls run as jax.jit meanwhile")
        keys = () if name is None else (name,)
        history.named(self._origin, keys)
        return Program(types, work, keys=keys)

    def _add_done(self, jaxpr: ClosedJaxpr, program: Program, state: State, verdict: Verdict | None = None) -> None:
        program.move(state, verdict)
        program.done.set()
        self._add(jaxpr, program)

    def _add(self, jaxpr: ClosedJaxpr, program: Program) -> bool:
        """Note a program, unless another thread has noted one."""
        with _lock:
            return self._programs.setdefault(jaxpr, program) is program

    def _make(
        self,
        program: Program,
        plain: jax.stages.Traced,
        known: Verdict | None,
        spent: float,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Have the program made. The types of the arguments count: they may have been donated."""
        alone = program.agreement is None  # A call that others do not make waits for them.
        again = rehearsal(plain.jaxpr, self._fun, args, kwargs, self._jit_options) if alone else None
        measures, budget = self._mode is Mode.AUTO, budget_for(self._took)
        job = Making(program, weakref.ref(self), self._origin, current_context(), again, measures, known, budget)
        program.job, job.plain, job.spent = job, plain, spent
        try:
            # Not in the background: the user's function, which may be traced again, belongs to this thread.
            job.traced = self._variants[Kind.STITCHED].without(program.faults).trace(*args, **kwargs)
        except BaseException as failure:
            program.failure = failure
            program.move(State.REFUSED if self._origin.strict else State.PLAIN)
            program.done.set()
            self.settle()
            raise
        notices.begin(program.work)
        background.submit(job)

    def _try(self, program: Program, jaxpr: ClosedJaxpr, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one of both programs, in turn, and time it."""
        kind = program.trial.begin()
        if kind is None:
            return self._run(Kind.PLAIN, program.faults, args, kwargs)
        seconds = None
        try:
            result, seconds = timed(lambda: self._run(kind, program.faults, args, kwargs), (args, kwargs))
        except jax.errors.JaxRuntimeError as failure:
            if kind is Kind.PLAIN or not can_repeat(jaxpr, (args, kwargs)):
                raise
            # What is wrong with the call itself is raised here.
            result = self._run(Kind.PLAIN, program.faults, args, kwargs)
            self._failed(program, failure)
        finally:
            times = program.trial.end(kind, seconds)
        if times is not None:  # For this process and later ones.
            self._settle_on(program, measured(times.plain, times.stitched, times.error, program.before))
        return result

    def _failed(self, program: Program, failure: Exception) -> None:
        """Leave the stitched program in this process: the device has refused it, and not the other one."""
        told = str(failure).splitlines()[0]
        if program.move(State.PLAIN, Verdict(False, f"the stitched program failed: {told}")):
            self.settle()
            warn(self._origin, f"the stitched program failed where jax.jit's does not: {told}")

    def _together(self, program: Program, agreement: Agreement, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a program that several processes share: what they have agreed on."""
        step = agreement.step()
        if step.verdict is not None:
            self._settle_on(program, step.verdict)
        if not step.is_timed:
            return self._run(step.kind, program.faults, args, kwargs)
        result, seconds = timed(lambda: self._run(step.kind, program.faults, args, kwargs), (args, kwargs))
        agreement.timed(step.kind, seconds)
        return result

    def _again(
        self, traced: jax.stages.Traced, agreement: Agreement, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the first call of a program run before, whose trace JAX has forgotten: the others make their next
        one.
        """
        program = self._program(traced, None)
        program.agreement, program.faults = agreement, self._faults(traced)
        self._add_done(traced.jaxpr, program, State.TRYING)
        return self._together(program, agreement, args, kwargs)

    def _settle_on(self, program: Program, verdict: Verdict) -> None:
        """Make all later calls run what the verdict says, also in later processes."""
        names, made = program.names, program.made
        verdict = replace(verdict, programs=names, kernels=made.kernels, replaced=made.replaced)
        if not program.move(State.STITCHED if verdict.stitched else State.PLAIN, verdict):
            return
        for key in program.keys if made.lasting else ():
            keep(key, verdict)
        _logger.log(log.level(), "%s: %s", program.call, result_of(verdict))
        notices.tell_result(program.work, result_of(verdict))
        self.settle()

    def settle(self) -> None:
        """Make the next call of each program find in which state that is."""
        programs = list(self._programs.values())
        forget_types(self.function)
        if {program.state for program in programs} == {State.STITCHED}:
            for program in programs:
                if program.job is not None:
                    program.job.rehearse(self.function)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing more goes on in the background for calls like those made so far, whatever it came to;
        False after ``timeout`` s. What remains to be measured is measured on the next calls.

        Raises what went wrong where that could not be a warning.
        """
        left = timeout
        for program in list(self._programs.values()):
            start = time.monotonic()
            if not program.done.wait(left):
                return False
            if program.failure is not None:
                raise program.failure
            if left is not None:
                left = max(0.0, left - (time.monotonic() - start))
        return True

    def status(self) -> Status:
        """Return what calls like those made so far run, what is being made, and what it brought."""
        programs = tuple(status_of(program) for program in list(self._programs.values()))
        return Status(self._origin.name, self._mode.value, programs + inside(self._origin))

    def clear(self) -> None:
        """Forget every trace and every compiled program of the function."""
        for program in list(self._programs.values()):
            if program.state is State.MAKING:
                notices.end(program.work)
                notices.tell_result(program.work, "given up, since its cache was cleared")
        with _lock:
            self._programs = weakref.WeakKeyDictionary()
        forget_types(self.function)
        for variants in self._variants.values():
            variants.clear()
        self._evict()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for programs in list(_all):
        programs.tracing = threading.RLock()


_all: weakref.WeakSet[Programs] = weakref.WeakSet()
_lock = threading.Lock()
"""Held for moments only, by whoever changes which programs there are."""

os.register_at_fork(after_in_child=_after_fork)
hide_frames(__file__)
