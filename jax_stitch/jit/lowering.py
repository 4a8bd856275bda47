"""Lowering a stitched operation: its kernels planned and compiled for the platform, or the operation as it is."""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from msgspec import structs

from jax_stitch import devices
from jax_stitch.backend.compile import effort
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture, compiled
from jax_stitch.jit import stages
from jax_stitch.jit.debug.reports import Settings, debugging, report
from jax_stitch.jit.donated import donated
from jax_stitch.jit.nesting import room
from jax_stitch.jit.primitive import Request, argument_types, result_types, short_types, stitched_p
from jax_stitch.jit.programs import at_hand, history, record, verdicts
from jax_stitch.jit.programs.fallback import is_internal, reason_of, warn
from jax_stitch.jit.programs.kernel_names import kernels_named
from jax_stitch.jit.programs.record import NotWorthStitching
from jax_stitch.jit.rebuilt import rebuild
from jax_stitch.jit.shardings import NO_MESH, OperandShardings, around, at, in_own_mesh, operand_shardings
from jax_stitch.util import log, log_output, notices
from jax_stitch.util.forks import forked_after_use
from jax_stitch.util.jax_names import ClosedJaxpr, jaxpr_as_fun, mlir
from jax_stitch.util.options.template_error import TemplateError
from jax_stitch.util.progress import counted
from jax_stitch.util.tracebacks import hide_frames

_logger = logging.getLogger(__name__)

_UNNAMEABLE = re.compile(r"[^\w.-]")
"""Characters that JAX writes as "_" in the name of a program."""
_FRAMES = 40
"""That one operation inside another takes when it is lowered."""
capturing: ContextVar[str] = ContextVar("jax_stitch_capturing", default="")
"""The outer stitched function that decides for those inside it, which are part of it; "" where there is none."""
agreeing: ContextVar[bool] = ContextVar("jax_stitch_agreeing", default=False)
"""Whether all processes decide together on what is lowered here."""


def stitched(
    jaxpr: ClosedJaxpr, origin: Request, device: Device, where: OperandShardings = None, donated: tuple[int, ...] = ()
) -> ClosedJaxpr:
    """Return ``jaxpr`` rebuilt around its stitched kernels, which are compiled for ``device``, or each of several like
    it.

    ``donated`` are the arguments whose memory results may take. Planned once, and recorded each time. Raises what any
    stage raises.
    """
    memo = _memo_of(jaxpr)
    how = origin.planner, origin.templates, origin.autotune, origin.verify, origin.sparing
    key = (device, origin.scheduled_for, *how, where, donated)
    wanted = record.current()
    with memo.lock:
        if key not in memo.rebuilt:
            with record.recorded(measures=wanted.measures) as found:
                try:
                    with _spoken_of(origin, jaxpr):
                        memo.rebuilt[key] = _plan(jaxpr, origin, device, where, donated), found
                except NotWorthStitching as better_left:
                    if found.kept is None:  # What was measured before may be measured again, for another caller.
                        memo.rebuilt[key] = type(better_left)(str(better_left)), found
                    raise
                finally:
                    wanted.add(found)
        else:
            wanted.add(structs.replace(memo.rebuilt[key][1], planning=0.0, compiling=0.0))
        result = memo.rebuilt[key][0]
    if isinstance(result, NotWorthStitching):
        raise type(result)(str(result))
    return result


@contextmanager
def _spoken_of(origin: Request, jaxpr: ClosedJaxpr) -> Iterator[None]:
    """Say what a call waits for, where that takes long. Work in the background is spoken of by whoever began it."""
    if effort.low.get():
        yield
        return
    work = notices.Work(_call(origin, jaxpr), "its call waits for that")
    notices.begin(work)
    end = "left to jax.jit after"
    try:
        with counted(work.count):
            yield
        end = "stitched in"
    finally:
        notices.end(work)
        notices.tell_result(work, f"{end} {time.monotonic() - work.began:.0f} s")


def _plan(
    jaxpr: ClosedJaxpr, origin: Request, device: Device, where: OperandShardings, donated: tuple[int, ...]
) -> ClosedJaxpr:
    log_output.follow()
    start = time.perf_counter()
    arguments = argument_types(jaxpr)
    if _is_alone(jaxpr, device, where):
        known_run = at_hand.taken(origin.name, origin.place, arguments, result_types(jaxpr))
        if known_run is not None:
            return jax.make_jaxpr(known_run)(*arguments)

    def plain(*arrays: Any) -> list[Any]:
        with in_own_mesh(jaxpr, arrays) as placed:
            return list(jaxpr_as_fun(jaxpr)(*placed))

    fun, types, placement = around(plain, arguments, where)
    fun.__name__ = fun.__qualname__ = origin.name
    with inner_operations_plain(origin), jax.sharding.use_abstract_mesh(NO_MESH):
        captured = replace(capture(fun, types, device, placement=placement, donated=donated), place=origin.place)
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
    took = time.perf_counter() - start
    _logger.log(log.level(), "%s: stitched for %s in %.2f s", _call(origin, jaxpr), device.name, took)
    return result


def _is_alone(jaxpr: ClosedJaxpr, device: Device, where: OperandShardings) -> bool:
    """Return whether there is nothing about an operation but its program: no GPU on which the launcher has to be
    chosen, one device, no effects, nobody who looks at its stages."""
    return device.target.is_host and where is None and not jaxpr.effects and not stages.wanted()


@dataclass(slots=True, eq=False)
class _Memo:
    """The rebuilt forms of one jaxpr, by device and request. Whoever plans holds the lock: threads plan once."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    rebuilt: dict[tuple[Any, ...], tuple[ClosedJaxpr | NotWorthStitching, record.Record]] = field(default_factory=dict)


_memos: weakref.WeakKeyDictionary[ClosedJaxpr, _Memo] = weakref.WeakKeyDictionary()
_memos_lock = threading.Lock()


def _memo_of(jaxpr: ClosedJaxpr) -> _Memo:
    with _memos_lock:
        return _memos.setdefault(jaxpr, _Memo())


@contextmanager
def inner_operations_plain(outer: Request) -> Iterator[None]:
    """Lower stitched operations as they are: they are part of ``outer``, which is captured, or wanted at once."""
    token = capturing.set(outer.name)
    try:
        yield
    finally:
        capturing.reset(token)


def several_processes() -> bool:
    """Return whether other processes run the same programs: their collectives wait for each other's, so that no process
    may choose for itself what it runs."""
    return jax.process_count() > 1


def _lower(ctx: Any, *arrays: Any, jaxpr: ClosedJaxpr, origin: Request) -> Any:
    lowered, reason = jaxpr, None
    alone = origin.sparing and several_processes() and not agreeing.get()
    if capturing.get():
        _note(ctx, jaxpr, origin, outer=capturing.get())
    elif alone:
        _note(ctx, jaxpr, origin, reason="of several processes each would decide for itself inside another program")
    else:
        lowered, reason = _attempt(ctx, arrays, jaxpr, origin)
    # What is wrong with the user's own program is raised here, before any warning.
    inside = ctx.replace(avals_in=lowered.in_avals)
    with _rebuilt() if lowered is not jaxpr else nullcontext(), room(_FRAMES):
        values = mlir.lower_fun(jaxpr_as_fun(lowered), multiple_results=True)(inside, *arrays)
    if len(ctx.tokens_in):
        ctx.set_tokens_out(inside.tokens_out)
    if reason is not None:
        warn(origin, reason)
    return values


@contextmanager
def _rebuilt() -> Iterator[None]:
    """Lower a rebuilt program: its types say nothing about the devices, and its kernels have their names."""
    with jax.sharding.use_abstract_mesh(NO_MESH), kernels_named():
        yield


def _attempt(ctx: Any, arrays: Sequence[Any], jaxpr: ClosedJaxpr, origin: Request) -> tuple[ClosedJaxpr, str | None]:
    """Return the stitched form of an operation; or the operation, and why it is left, if that is worth a warning."""
    module, caller = ctx.module_context, record.current()
    with record.recorded(measures=caller.measures) as found:
        lowered, reason = jaxpr, _obstacle(module)
        try:
            if reason is None:
                where = operand_shardings(ctx, arrays)
                given = donated(arrays) if where is None else ()
                lowered = stitched(jaxpr, origin, _device(module.platforms[0]), where, given)
        except TemplateError:
            raise  # What the user asked for is not done otherwise in silence.
        except NotWorthStitching as better_left:
            found.left = str(better_left)
            _logger.log(log.level(), "%s: stays jax.jit, %s", _call(origin, jaxpr), better_left)
        except Exception as failure:
            reason = reason_of(failure, origin)
        finally:
            caller.add(found)
    history.named(origin, found.programs)
    _note(ctx, jaxpr, origin, found, reason=reason or found.left or "")
    return lowered, reason


def _note(
    ctx: Any,
    jaxpr: ClosedJaxpr,
    origin: Request,
    found: record.Record | None = None,
    *,
    outer: str = "",
    reason: str = "",
) -> None:
    """Note what came of an operation for the function's ``status()``, unless whoever has it lowered tells of it."""
    if record.current().owner is origin:
        return
    found = found or record.Record()
    program = ctx.module_context.module.operation.attributes["sym_name"].value
    own = _UNNAMEABLE.sub("_", f"jit({origin.name})").rstrip("_")
    outcome = history.Outcome(
        types=short_types(jaxpr.in_avals),
        place="" if program == own else program.removeprefix("jit_"),
        outer=outer,
        stitched=not outer and not reason,
        reason=reason.splitlines()[0] if reason else "",
        kernels=found.kernels,
        replaced=found.replaced,
        planning=found.planning,
        compiling=found.compiling,
        verdict=verdicts.load(found.programs[0]) if len(found.programs) == 1 else None,
    )
    history.note(origin, outcome, short_types(jaxpr.out_avals))


def _call(origin: Request, jaxpr: ClosedJaxpr) -> str:
    """Return what messages call an operation: the function with the types of its arguments."""
    return f"{origin.name}({short_types(jaxpr.in_avals)})"


def _obstacle(module: Any) -> str | None:
    """Return what about the program around it keeps an operation from being stitched."""
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
