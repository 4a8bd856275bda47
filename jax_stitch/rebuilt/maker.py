"""The child process that makes rebuilt programs for a parent whose calls must not be disturbed."""

from __future__ import annotations

import logging
import math
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from jax_stitch.capture import capture
from jax_stitch.capture.compiled import Compiled
from jax_stitch.capture.errors import Unstitchable
from jax_stitch.child import serve, tell_parent
from jax_stitch.compile import effort, process
from jax_stitch.devices import Device
from jax_stitch.options.autotune import Autotune
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.options.verification import Verify
from jax_stitch.programs.on_disk import keep
from jax_stitch.programs.program import RebuiltProgram
from jax_stitch.programs.record import NotWorthStitching
from jax_stitch.rebuilt.budget import BudgetSpent, within
from jax_stitch.rebuilt.elsewhere import conditions
from jax_stitch.rebuilt.make import make
from jax_stitch.util.progress import counted

_IDLE = 60.0
"""Seconds without a request after which it gives its memory back."""


def answer(header: dict[str, Any], bytecode: bytes) -> tuple[dict[str, Any], bytes]:
    """The reply to ``make_elsewhere``: "reason", "log", and "outcome": "made", "not worth it", "spent" (its
    "time" or "memory"), "unstitchable" or "failed"."""
    with _log_kept(header["log"]) as log, counted(_tell):
        try:
            with within(header["budget"], header["memory"]):
                reason = _make(header, bytecode)
            outcome = "failed" if reason else "made"
        except NotWorthStitching as better_left:
            outcome, reason = "not worth it", str(better_left)
        except BudgetSpent as spent:
            outcome, reason = "spent", str(spent)
        except Unstitchable as failure:
            outcome, reason = "unstitchable", str(failure)
        except Exception:  # The parent meets it as well.
            outcome, reason = "failed", traceback.format_exc()
    return {"outcome": outcome, "reason": reason, "log": log}, b""


def _make(header: Mapping[str, Any], bytecode: bytes) -> str:
    """Makes a program and stores it; returns why not, if something stands against it."""
    _adapt(header["environment"], header["options"])
    device, laid_out_for = _device(header["device"]), _device(header["laid_out_for"])
    # A process of other versions, or of an environment that does not reach it, would make another program.
    own = conditions(device)
    differing = [name for name, value in header["conditions"].items() if own[name] != value]
    if differing:
        return f"the processes differ in {', '.join(differing)}"
    parameters, results = (
        tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in header[of])
        for of in ("parameters", "results")
    )
    callbacks = [_Callback(number) for number in range(header["callbacks"])]
    program = RebuiltProgram(header["function"], bytecode, (), callbacks=tuple(range(len(callbacks))))

    def whole(*arrays: Any) -> list[Any]:
        return program(arrays, results, callbacks)

    whole.__name__ = whole.__qualname__ = header["function"]
    text = header["text"]
    here = device if text is None or device.target.is_host else replace(device, attached=False)
    captured = capture(whole, parameters, here, donated=header["donated"])
    if text is not None:
        captured = replace(captured, _known_text=text)
    if header["compiled"] is not None:
        captured = replace(captured, compiled=Compiled(*header["compiled"]))
    effort.planning.set(math.inf if header["planning"] is None else header["planning"])
    choices = Autotune.OFF, Verify.OFF, header["sparing"]
    made = make(captured, device, laid_out_for, PlannerName(header["planner"]), header["templates"], *choices)
    if made.constants:
        return "the program has arrays of its own"
    keep(header["name"], made)
    return ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Callback:
    """In place of a Python function of the parent's, which only the parent calls."""

    number: int

    def __call__(self, *arrays: Any) -> Any:
        raise AssertionError(f"the Python function {self.number} is the parent's")


def _tell(done: int, total: int) -> None:
    tell_parent({"compiled": [done, total]})


def _adapt(environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """Sets what can be set of the parent's surroundings: the rest has been the same from the start, or differs."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    config: Any = jax.config
    for name, value in options.items():
        if hasattr(config, name) and getattr(config, name) != value:
            jax.config.update(name, value)


def _device(facts: dict[str, Any]) -> Device:
    capability = facts["compute_capability"]
    return Device(**facts | {"compute_capability": tuple(capability) if capability else None})


@contextmanager
def _log_kept(level: int) -> Iterator[list[tuple[str, int, str]]]:
    """What is logged from ``level`` on: logger, level and message."""
    kept: list[tuple[str, int, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append((record.name, record.levelno, record.getMessage()))

    logger, handler = logging.getLogger("jax_stitch"), Keep()
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield kept
    finally:
        logger.removeHandler(handler)


def _give_way() -> None:
    """Runs, with what it starts, only where a core has nothing else to do: at the lowest of usual priorities a thread
    still keeps a core for a millisecond or two after another wants it."""
    with suppress(AttributeError, OSError):  # Linux alone has it.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _end(*_: Any) -> None:
    process.interrupt()
    raise SystemExit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    _give_way()
    effort.low.set(True)
    serve(answer, _IDLE)
