"""Lowering a stitched operation: its kernels planned and compiled for the platform, or the operation as it is."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from jax_stitch import devices, stages
from jax_stitch.capture import capture, compiled
from jax_stitch.compile import effort
from jax_stitch.debug.reports import Settings, debugging, report
from jax_stitch.devices import Device
from jax_stitch.jax_names import ClosedJaxpr, jaxpr_as_fun, mlir
from jax_stitch.jit.donated import donated
from jax_stitch.jit.nesting import room
from jax_stitch.jit.primitive import Request, argument_types, result_types, stitched_p
from jax_stitch.jit.shardings import NO_MESH, OperandShardings, around, at, in_own_mesh, operand_shardings
from jax_stitch.options.template_error import TemplateError
from jax_stitch.programs import at_hand, record
from jax_stitch.programs.fallback import is_internal, reason_of, warn
from jax_stitch.programs.record import NotWorthStitching
from jax_stitch.rebuilt import rebuild
from jax_stitch.util import log, log_output, notices
from jax_stitch.util.forks import forked_after_use
from jax_stitch.util.progress import counted
from jax_stitch.util.tracebacks import hide_frames

_logger = logging.getLogger(__name__)

_FRAMES = 40
"""That one operation inside another takes when it is lowered."""
capturing: ContextVar[bool] = ContextVar("jax_stitch_capturing", default=False)
"""Whether an outer stitched operation is being captured: an inner one is then part of it."""


agreeing: ContextVar[bool] = ContextVar("jax_stitch_agreeing", default=False)
"""Whether all processes decide together on what is lowered here."""


def stitched(
    jaxpr: ClosedJaxpr, origin: Request, device: Device, where: OperandShardings = None, donated: tuple[int, ...] = ()
) -> ClosedJaxpr:
    """``jaxpr`` rebuilt around its stitched kernels, which are compiled for ``device``, or each of several like it.

    ``donated`` are the arguments whose memory results may take. Planned once. Raises what any stage raises.
    """
    memo = _memo_of(jaxpr)
    how = origin.planner, origin.templates, origin.autotune, origin.verify, origin.sparing
    key = (device, origin.scheduled_for, *how, where, donated)
    with memo.lock:
        if key not in memo.rebuilt:
            with _spoken_of(origin):
                memo.rebuilt[key] = _plan(jaxpr, origin, device, where, donated)
        return memo.rebuilt[key]


@contextmanager
def _spoken_of(origin: Request) -> Iterator[None]:
    """Says what a call waits for, where that takes long. Work in the background is spoken of by whoever began it."""
    if effort.low.get():
        yield
        return
    work = notices.Work(origin.name, "its call waits for that")
    notices.begin(work)
    try:
        with counted(work.count):
            yield
    finally:
        notices.end(work)
    notices.tell_result(work, f"stitched in {time.monotonic() - work.began:.0f} s")


def _plan(
    jaxpr: ClosedJaxpr, origin: Request, device: Device, where: OperandShardings, donated: tuple[int, ...]
) -> ClosedJaxpr:
    log_output.follow()
    start = time.perf_counter()
    arguments = argument_types(jaxpr)
    if _is_alone(jaxpr, device, where):
        known_run = at_hand.taken(origin.name, arguments, result_types(jaxpr))
        if known_run is not None:
            return jax.make_jaxpr(known_run)(*arguments)

    def plain(*arrays: Any) -> list[Any]:
        with in_own_mesh(jaxpr, arrays) as placed:
            return list(jaxpr_as_fun(jaxpr)(*placed))

    fun, types, placement = around(plain, arguments, where)
    fun.__name__ = fun.__qualname__ = origin.name
    with inner_operations_plain(), jax.sharding.use_abstract_mesh(NO_MESH):
        captured = capture(fun, types, device, placement=placement, donated=donated)
        known = compiled.at_hand.get()
        if known is not None and where is None:
            captured = replace(captured, compiled=known.for_types(captured.parameters, captured.results))
        try:
            run = rebuild(
                *(captured, device, origin.planner, origin.scheduled_for, origin.templates),
                autotune=origin.autotune,
                verify=origin.verify,
                sparing=origin.sparing,
            )
        except NotWorthStitching:
            raise
        except Exception as failure:
            if debugging() and is_internal(failure):
                laid_out_for = origin.scheduled_for or device
                settings = Settings(device.name, laid_out_for.name, origin.planner.value, origin.templates)
                report(captured, failure, settings)
            raise
        result = jax.make_jaxpr(at(run, captured, where))(*arguments)
    wanted, returned = ([(a.shape, a.dtype) for a in avals] for avals in (jaxpr.out_avals, result.out_avals))
    if returned != wanted:
        raise TypeError(f"the rebuilt program returns {returned}, not {wanted}")
    _logger.log(log.level(), "%s: stitched for %s in %.2f s", origin.name, device.name, time.perf_counter() - start)
    return result


def _is_alone(jaxpr: ClosedJaxpr, device: Device, where: OperandShardings) -> bool:
    """Whether there is nothing about an operation but its program: no GPU on which the launcher has to be chosen, one
    device, no effects, nobody who looks at its stages."""
    return device.target.is_host and where is None and not jaxpr.effects and not stages.wanted()


@dataclass(slots=True, eq=False)
class _Memo:
    """The rebuilt forms of one jaxpr, by device and request. Whoever plans holds the lock: threads plan once."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    rebuilt: dict[tuple[Any, ...], ClosedJaxpr] = field(default_factory=dict)


_memos: weakref.WeakKeyDictionary[ClosedJaxpr, _Memo] = weakref.WeakKeyDictionary()
_memos_lock = threading.Lock()


def _memo_of(jaxpr: ClosedJaxpr) -> _Memo:
    with _memos_lock:
        return _memos.setdefault(jaxpr, _Memo())


@contextmanager
def inner_operations_plain() -> Iterator[None]:
    """Lowers stitched operations as they are: they are part of one that is captured, or wanted at once."""
    token = capturing.set(True)
    try:
        yield
    finally:
        capturing.reset(token)


def several_processes() -> bool:
    """Whether other processes run the same programs: their collectives wait for each other's, so that no process may
    choose for itself what it runs."""
    return jax.process_count() > 1


def _lower(ctx: Any, *arrays: Any, jaxpr: ClosedJaxpr, origin: Request) -> Any:
    module = ctx.module_context
    reason = None
    lowered = jaxpr
    alone = origin.sparing and several_processes() and not agreeing.get()
    if not capturing.get() and not alone:
        reason = _obstacle(module)
        if reason is None:
            try:
                where = operand_shardings(ctx, arrays)
                given = donated(arrays) if where is None else ()
                lowered = stitched(jaxpr, origin, _device(module.platforms[0]), where, given)
            except TemplateError:
                raise  # What the user asked for is not done otherwise in silence.
            except NotWorthStitching as better_left:
                record.current().left = str(better_left)
                _logger.log(log.level(), "%s: stays jax.jit, %s", origin.name, better_left)
            except Exception as failure:
                reason = reason_of(failure, origin)
    # What is wrong with the user's own program is raised here, before any warning. A rebuilt program's types say
    # nothing about the devices.
    inside = ctx.replace(avals_in=lowered.in_avals)
    with jax.sharding.use_abstract_mesh(NO_MESH) if lowered is not jaxpr else nullcontext(), room(_FRAMES):
        values = mlir.lower_fun(jaxpr_as_fun(lowered), multiple_results=True)(inside, *arrays)
    if len(ctx.tokens_in):
        ctx.set_tokens_out(inside.tokens_out)
    if reason is not None:
        warn(origin, reason)
    return values


def _obstacle(module: Any) -> str | None:
    """What about the program around it keeps an operation from being stitched."""
    platforms = tuple(module.platforms)
    if forked_after_use():
        return (
            "its process was forked from one that had used JAX, and XLA's threads do not outlive a fork, so that this "
            "call may never return: start processes by 'spawn' or 'forkserver', or before JAX is first used"
        )
    if module.lowering_parameters.for_export:
        return "an exported program cannot hold kernels of this process"
    if len(platforms) != 1:
        return f"it is lowered for {', '.join(platforms)} at once"
    if platforms[0] == "cuda" and jax.default_backend() != "gpu":
        return "it is lowered for a GPU that is not attached"
    if platforms[0] not in ("cpu", "cuda"):
        return f"there are no kernels for {platforms[0]}"
    return None


def _device(platform: str) -> Device:
    return devices.get("cpu" if platform == "cpu" else None)


mlir.register_lowering(stitched_p, _lower, cacheable=False)  # Like operations may have unlike operands: where they lie.
hide_frames(__file__)
