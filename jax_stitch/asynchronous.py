"""``mode="async"``: a function that runs under plain ``jax.jit`` until its stitched program is ready.

There are two ``jax.jit`` of it. The first call with new types of arguments, and those after it, run the plain one,
while the program of the other one is planned and compiled in the background, into JAX's own caches. Then calls go to
the other one, which finds its program there. Once every program is ready, a call is one Python call more than a call
of ``jax.jit``.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from jax_stitch import background, log
from jax_stitch.capture.function import function_name
from jax_stitch.fallback import StitchWarning, reason_of, warn, warnings_held
from jax_stitch.frames import hide_frames
from jax_stitch.jax_context import JaxContext, current_context, tracing
from jax_stitch.lowering import inner_operations_plain
from jax_stitch.operation import Origin
from jax_stitch.rehearsal import Rehearsal, rehearsal

_logger = logging.getLogger(__name__)

_preparing: ContextVar[bool] = ContextVar("jax_stitch_preparing", default=False)
"""Whether the stitched function may be traced: elsewhere that would be the start of a long wait."""


class _Unprepared(Exception):
    """There is no stitched program for these arguments."""


def asynchronous(
    fun: Callable[..., Any],
    stitched: Callable[..., Any],
    inline: Any,
    origin: Origin,
    jit_options: Mapping[str, Any],
) -> Callable[..., Any]:
    """``fun`` under plain ``jax.jit`` until ``stitched``, which computes the same, is compiled.

    Where JAX traces a caller, there is no later call that could run another program: ``inline``, ``jax.jit`` of
    ``stitched``, is called there, and is what ``lower``, ``trace`` and ``eval_shape`` are of.
    """
    programs = _Programs(fun, stitched, inline, origin, jit_options)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return programs.current(*args, **kwargs)
        except _Unprepared:
            pass
        return programs.choose(*args, **kwargs)

    function: Any = call
    function.__name__ = inline.__name__
    function.lower, function.trace, function.eval_shape = inline.lower, inline.trace, inline.eval_shape
    function.clear_cache, function.wait = programs.clear, programs.wait
    return call


def traced_apart(fun: Callable[..., Any]) -> Any:
    """``fun`` as another function to JAX: its plain programs must not be taken for those of ``jax.jit(fun)``.

    Its attribute ``last_trace`` is a new object after each trace.
    """

    @functools.wraps(fun)
    def apart(*args: Any, **kwargs: Any) -> Any:
        seen.last_trace = object()
        return fun(*args, **kwargs)

    seen: Any = apart
    seen.__name__, seen.last_trace = function_name(fun), None
    return seen


def nothing_to_wait_for(timeout: float | None = None) -> bool:
    """The ``wait`` of a function in another mode."""
    del timeout
    return True


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Program:
    """The stitched program for one trace of the function, in the making or made."""

    owner: weakref.ref[_Programs]
    origin: Origin
    context: JaxContext
    rehearsal: Rehearsal | None
    traced: jax.stages.Traced | None = None
    """What there is to compile; None once that is done."""
    ready: bool = False
    failure: BaseException | None = None
    """For ``wait``: what nobody has been warned of."""
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        assert self.traced is not None
        start = time.perf_counter()
        with warnings_held() as held:
            try:
                with self.context.entered():
                    self.traced.lower().compile()
                self.ready = True
            except Exception as failure:
                _logger.debug("%s: not prepared in the background", self.origin, exc_info=failure)
                self._fail(failure)
        self.traced = None
        if background.ending():
            self.done.set()
            return
        try:
            for origin, reason in held:
                warn(origin, reason)
        except StitchWarning as failure:  # Where warnings are errors.
            self.failure = failure
        if self.ready and (owner := self.owner()) is not None:
            owner.settle()
            seconds = time.perf_counter() - start
            _logger.log(log.level(), "%s: ready, after %.2f s in the background", self.origin, seconds)
        self.done.set()

    def rehearse(self, function: Callable[..., Any]) -> None:
        """Calls the function, so that its next call takes JAX's fast path."""
        if self.rehearsal is None:
            return
        try:
            with self.context.entered(), _may_prepare():
                args, kwargs = self.rehearsal.arguments()
                jax.block_until_ready(function(*args, **kwargs))
        except Exception as failure:  # Of zeros, with NaNs looked for: the user's call is another one.
            _logger.debug("%s: not rehearsed", self.origin, exc_info=failure)

    def abandon(self, forked: bool) -> None:
        self.traced = None
        if forked:  # A thread that is not here may have locked it.
            self.done = threading.Event()
        self.done.set()

    def _fail(self, failure: Exception) -> None:
        try:
            warn(self.origin, reason_of(failure, self.origin))
        except Exception as raised:  # The function is strict, or warnings are errors.
            self.failure = raised
            if self.origin.strict and (owner := self.owner()) is not None:
                owner.refuse()


class _Programs:
    """The plain and the stitched ``jax.jit`` of a function, and which of its programs are ready."""

    def __init__(
        self,
        fun: Any,
        stitched: Callable[..., Any],
        inline: Any,
        origin: Origin,
        jit_options: Mapping[str, Any],
    ) -> None:
        @functools.wraps(stitched)
        def prepared(*args: Any, **kwargs: Any) -> Any:
            if not _preparing.get():
                raise _Unprepared
            return stitched(*args, **kwargs)

        self.current: Callable[..., Any] = self.start
        """What a call calls: ``start``, then ``choose``, then the stitched ``jax.jit``."""
        self._fun = fun
        self._plain: Any = jax.jit(fun, **jit_options)
        self._stitched: Any = jax.jit(prepared, **jit_options)
        self._inline = inline
        self._origin = origin
        self._jit_options = jit_options
        # By what JAX traces the function to, as long as JAX keeps that.
        self._programs: weakref.WeakKeyDictionary[ClosedJaxpr, _Program] = weakref.WeakKeyDictionary()
        self._evict = inline.clear_cache
        current_context()  # The first time takes some milliseconds, which the first call would miss.

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """A call while no program is ready: new types show in that the function is traced."""
        if tracing():
            return self._inline(*args, **kwargs)
        before = self._fun.last_trace
        try:
            result = self._run_plain(args, kwargs)
        except BaseException:
            self.current = self.choose  # The next call may find the trace, and must still be told to be new.
            raise
        if self._fun.last_trace is not before:
            self._prepare(args, kwargs)
        return result

    def choose(self, *args: Any, **kwargs: Any) -> Any:
        """A call while some programs are ready, or of types that are new."""
        config: Any = jax.config
        if tracing() or config.jax_disable_jit:
            return self._inline(*args, **kwargs)
        program = self._programs.get(self._plain.trace(*args, **kwargs).jaxpr)
        if program is not None and program.failure is not None and self._origin.strict:
            raise program.failure
        if program is not None and program.ready:
            with _may_prepare():  # JAX may have forgotten the trace.
                return self._stitched(*args, **kwargs)
        result = self._run_plain(args, kwargs)
        if program is None:
            self._prepare(args, kwargs)
        return result

    def _run_plain(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with inner_operations_plain():
            return self._plain(*args, **kwargs)

    def _prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Has the program for these arguments made, once. Their types count: they may have been donated."""
        config: Any = jax.config
        if config.jax_disable_jit:
            return
        jaxpr = self._plain.trace(*args, **kwargs).jaxpr
        again = rehearsal(jaxpr, self._fun, args, kwargs, self._jit_options)
        new = _Program(weakref.ref(self), self._origin, current_context(), again)
        with _lock:
            if self._programs.setdefault(jaxpr, new) is not new:
                return
            if self.current is self._stitched:
                self.current = self.choose
        try:
            # Not in the background: the user's function, which may be traced again, belongs to this thread.
            with _may_prepare():
                new.traced = self._stitched.trace(*args, **kwargs)
        except BaseException as failure:
            new.failure = failure
            new.done.set()
            raise
        background.submit(new)

    def settle(self) -> None:
        """Leaves out the choice where every program is ready.

        A thread that is about to call the stitched ``jax.jit`` when another one traces it for new types may then
        wait for the program, as in ``mode="now"``.
        """
        # JAX has noted that arguments which were refused once are not for its fast path.
        self._stitched._clear_cache()
        for program in list(self._programs.values()):
            if program.ready:
                program.rehearse(self._stitched)
        with _lock:
            if self._programs:  # None, where they have been forgotten meanwhile.
                settled = all(program.ready for program in self._programs.values())
                self.current = self._stitched if settled else self.choose

    def refuse(self) -> None:
        """Has the next call ask which program it would run: one has failed, of a function that is strict."""
        with _lock:
            self.current = self.choose

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until calls like those made so far run what they will run from then on; False after ``timeout`` s.

        Raises what went wrong where that could not be a warning.
        """
        end = None if timeout is None else time.monotonic() + timeout
        for program in list(self._programs.values()):
            if not program.done.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
            if program.failure is not None:
                raise program.failure
        return True

    def clear(self) -> None:
        """Forgets every trace and every compiled program of the function."""
        with _lock:
            self.current = self.start
            self._programs = weakref.WeakKeyDictionary()
        for function in (self._plain, self._stitched):
            function.clear_cache()
        self._evict()


@contextmanager
def _may_prepare() -> Iterator[None]:
    token = _preparing.set(True)
    try:
        yield
    finally:
        _preparing.reset(token)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


_lock = threading.Lock()
"""Held for moments only, by whoever changes which programs there are."""

os.register_at_fork(after_in_child=_after_fork)
hide_frames(__file__)
