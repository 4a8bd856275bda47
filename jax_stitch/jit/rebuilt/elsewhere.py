"""Kernels planned and compiled in a child process, at the lowest priority, while this one goes on as if nothing
happened.

A thread that plans takes the interpreter from the others. The child gets the program's HLO; kernels for the CPU come
back by way of the disk.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jax_stitch.backend.compile import effort
from jax_stitch.backend.launch import choice
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture
from jax_stitch.frontend.capture.errors import CaptureError, Unstitchable
from jax_stitch.jit.programs.record import GivenUp, NotWorthStitching
from jax_stitch.jit.rebuilt import background
from jax_stitch.jit.stitching.conditions import conditions
from jax_stitch.util import log
from jax_stitch.util.child import ChildDied, ChildFailed, Keeper, Message, encode
from jax_stitch.util.formatting import format_bytes
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.progress import tell_count

if TYPE_CHECKING:
    from jax_stitch.jit.stitching.model import KernelProgram

_logger = logging.getLogger(__name__)

_TIMEOUT = 3600.0
_MEMORY, _SHARE = 768 << 20, 15 / 16
"""Bytes that the child and its compilers may have, and more where this process had more: that share of it. Both then
take at most twice what the program takes without, the text of it that is sent included. What runs beside a program must
not be what a shared machine has no memory for."""
_NICENESS = 19
"""Beside one thread of usual priority that never rests, a process then gets about a 70th of a core."""

_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""NumPy's linear algebra, which a planner has no use for, makes a thread for each core where it is imported: that is
half of what the import takes on two cores, and more on many."""

MAKER = Keeper("jax_stitch.jit.stitching.maker", _ENVIRONMENT, _NICENESS)
background.at_stop(MAKER.interrupt)


def make_elsewhere(
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    sparing: bool = False,
) -> KernelProgram | None:
    """Return the kernels of a captured function, made by the child. None where this process has to make them: the child
    could not, or has nowhere to store them. Python functions that it calls are numbers there.

    Raises ``Unstitchable``; ``NotWorthStitching`` where it is ``sparing`` and the program is not worth it, ``GivenUp``
    where the budget of processor time (``effort.budget``) or of memory is used up; ``CaptureError`` where the child
    died of it, as this process might.
    """
    budget, memory = effort.budget.get(), max(_MEMORY, int(_SHARE * _most_memory()))
    planning = effort.planning.get()
    request = _request(captured, device) | {
        "laid_out_for": asdict(laid_out_for),
        "planner": planner.value,
        "templates": templates,
        "sparing": sparing,
        "planning": planning if math.isfinite(planning) else None,
        "budget": budget if math.isfinite(budget) else None,
        "memory": memory if math.isfinite(budget) else None,
    }
    start = time.process_time()
    text = captured.text.encode()  # XLA compiles it now, unless it is known.
    if request["xla_seconds"] is None:
        request["xla_seconds"] = time.process_time() - start
    try:
        reply, payload = _ask(encode(request, text))
    except ChildDied as death:
        raise CaptureError(f"the process that made its kernels {death}") from None
    except ChildFailed as failure:
        _logger.debug("%s: the process that makes kernels %s", captured.name, failure)
        return None
    for logger, level, message in reply["log"]:
        logging.getLogger(logger).log(log.level() if level == logging.INFO else level, "%s", message)
    if reply["outcome"] == "spent":
        MAKER.shut_down()  # It was stopped in the middle of something.
        if reply["reason"] == "memory":
            raise GivenUp(
                f"its kernels were not made in {format_bytes(memory)} of memory: JAX_STITCH_BUDGET=inf, or mode='now', "
                "gives them all that they take"
            )
        raise GivenUp(
            f"its kernels were not made after {budget:.0f} s of processor time: JAX_STITCH_BUDGET gives more, "
            "mode='now' all that it takes"
        )
    if reply["outcome"] == "not worth it":
        raise NotWorthStitching(reply["reason"])
    if reply["outcome"] == "unstitchable":
        raise Unstitchable(reply["reason"])
    if reply["outcome"] != "made":
        _logger.debug("%s: not made in another process: %s", captured.name, reply["reason"])
        return None
    # A process that finds its programs on disk has no use for graphs.
    from jax_stitch.jit.stitching.sent import KernelGone, from_bytes

    try:
        return from_bytes(payload)
    except KernelGone as gone:
        _logger.debug("%s: made in another process, but %s is not on disk", captured.name, gone)
        return None


def _request(captured: Capture, device: Device) -> dict[str, Any]:
    """Return what the child has to know of a function, of the device and of this process."""
    from jax_stitch.frontend.replay.missing import opcodes

    return {
        "function": captured.name,
        "homes": list(captured.homes.items()),
        "callbacks": len(captured.callbacks),
        "effects": len(captured.effects),
        "xla_seconds": captured.xla_seconds,
        "opcodes": sorted(opcodes()),
        "device": asdict(device),
        "environment": dict(os.environ) | choice.inherited(),
        "conditions": conditions(device),
        "log": _log_level(),
    }


def _log_level() -> int:
    """Return from which level on messages are of use: what is told at INFO is a warning where JAX is to tell of
    compilation.
    """
    effective = logging.getLogger("jax_stitch").getEffectiveLevel()
    return effective if log.level() == logging.INFO else min(effective, logging.INFO)


def _most_memory() -> int:
    """Return the most bytes that this process has had in memory."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def _ask(request: bytes) -> Message:
    try:
        return MAKER.ask(request, _TIMEOUT, _told)
    except ChildDied:  # Perhaps it had waited long enough and was about to end.
        if background.ending():
            raise
    return MAKER.ask(request, _TIMEOUT, _told)


def _told(header: Mapping[str, Any]) -> None:
    """Take note of what the child says on its way."""
    tell_count(*header["compiled"])
