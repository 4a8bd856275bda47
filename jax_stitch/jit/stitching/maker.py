"""The child process that plans and compiles for a parent whose calls must not be disturbed. It has no JAX."""

from __future__ import annotations

import logging
import math
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from jax_stitch.backend.compile import effort, process
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.frontend.replay.missing import replayed
from jax_stitch.jit.programs.record import NotWorthStitching
from jax_stitch.jit.stitching.budget import BudgetSpent, within
from jax_stitch.jit.stitching.conditions import conditions
from jax_stitch.jit.stitching.make import make
from jax_stitch.jit.stitching.model import SentProgram
from jax_stitch.jit.stitching.sent import to_bytes
from jax_stitch.util.child import Message, serve, tell_parent
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify
from jax_stitch.util.progress import counted

_IDLE = 60.0
"""Seconds without a request after which it gives its memory back."""


def answer(header: dict[str, Any], text: bytes) -> Message:
    """Return the reply to ``make_elsewhere``: "reason", "log", and "outcome": "made" (with the program), "not worth
    it", "spent" (its "time" or "memory"), "unstitchable" or "failed"."""
    made, reason = b"", ""
    with _log_kept(header["log"]) as log, counted(_tell):
        try:
            with within(header["budget"], header["memory"]):
                made, reason = _made(header, text.decode())
            outcome = "failed" if reason else "made"
        except NotWorthStitching as better_left:
            outcome, reason = "not worth it", str(better_left)
        except BudgetSpent as spent:
            outcome, reason = "spent", str(spent)
        except Unstitchable as failure:
            outcome, reason = "unstitchable", str(failure)
        except Exception:  # The parent meets it as well.
            outcome, reason = "failed", traceback.format_exc()
    return {"outcome": outcome, "reason": reason, "log": log}, made


def _made(header: Mapping[str, Any], text: str) -> tuple[bytes, str]:
    """Return the program as bytes; or why there is none, if something stands against it."""
    _adapt(header["environment"])
    device, laid_out_for = _device(header["device"]), _device(header["laid_out_for"])
    # A process of other versions, or of an environment that does not reach it, would make other kernels.
    own = conditions(device)
    differing = [name for name, value in header["conditions"].items() if own[name] != value]
    if differing:
        return b"", f"the processes differ in {', '.join(differing)}"
    captured = SentProgram(
        name=header["function"],
        device=device,
        text=text,
        homes=dict(header["homes"]),
        callbacks=range(header["callbacks"]),
        effects=range(header["effects"]),
        seconds=0.0,
        xla_seconds=header["xla_seconds"],
    )
    effort.planning.set(math.inf if header["planning"] is None else header["planning"])
    replayed.set(frozenset(header["opcodes"]))
    choices = Autotune.OFF, Verify.OFF, header["sparing"]
    made = make(captured, device, laid_out_for, PlannerName(header["planner"]), header["templates"], *choices)
    return to_bytes(made), ""


def _tell(done: int, total: int) -> None:
    tell_parent({"compiled": [done, total]})


def _adapt(environment: Mapping[str, str]) -> None:
    """Set what can be set of the parent's surroundings: the rest has been the same from the start, or differs."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def _device(facts: dict[str, Any]) -> Device:
    capability = facts["compute_capability"]
    return Device(**facts | {"compute_capability": tuple(capability) if capability else None})


@contextmanager
def _log_kept(level: int) -> Iterator[list[tuple[str, int, str]]]:
    """Keep what is logged from ``level`` on: logger, level and message."""
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
    """Run, with what it starts, only when a core has nothing else to do: at the lowest of usual priorities a thread
    still keeps a core for a millisecond or two after another wants it.
    """
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
