"""Rebuilt programs made in a child process, at the lowest priority, while this one goes on as if nothing happened.

A thread that plans takes the interpreter from the others, and XLA compiles on threads of a usual priority. The child
gets the program as StableHLO and puts what it makes on disk, under the name that this process looks for.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax

from jax_stitch.capture import Capture
from jax_stitch.capture.errors import CaptureError, Unstitchable
from jax_stitch.child import ChildDied, ChildFailed, Keeper, encode
from jax_stitch.compile import effort
from jax_stitch.compile.surroundings import JAX_OPTIONS, surroundings
from jax_stitch.devices import Device
from jax_stitch.launch import choice
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.programs.identity import source
from jax_stitch.programs.on_disk import load
from jax_stitch.programs.program import RebuiltProgram
from jax_stitch.programs.record import NotWorthStitching
from jax_stitch.rebuilt import background
from jax_stitch.util.formatting import format_bytes
from jax_stitch.util.progress import tell_count

_logger = logging.getLogger(__name__)

_TIMEOUT = 3600.0
_MEMORY, _SHARE = 768 << 20, 15 / 16
"""Bytes that the child and its compilers may have, and more where this process had more: that share of it. Both then
take at most twice what the program takes without, the text of it that is sent included. What runs beside a program must
not be what a shared machine has no memory for."""
_NICENESS = 19
"""Beside one thread of usual priority that never rests, a process then gets about a 70th of a core."""

OPTIONS = (*JAX_OPTIONS, "jax_log_compiles")
"""JAX's options that the child works under."""

MAKER = Keeper("jax_stitch.rebuilt.maker", {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_PLATFORMS": "cpu"}, _NICENESS)
background.at_stop(MAKER.interrupt)


def make_elsewhere(
    name: str,
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    sparing: bool = False,
) -> RebuiltProgram | None:
    """The program of that name, made and stored by the child. None where this process has to make it: it has effects,
    or the child could not make it or has nowhere to store it. Python functions that it calls are numbers there.

    Raises ``Unstitchable``; ``NotWorthStitching`` where it is ``sparing`` and the program is not worth it, or where the
    budget of processor time (``effort.budget``) is used up; ``CaptureError`` where the child died of it, as this
    process might.
    """
    if captured.effects:
        return None
    budget, memory = effort.budget.get(), max(_MEMORY, int(_SHARE * _most_memory()))
    planning = effort.planning.get()
    request = _request(captured, device) | {
        "name": name,
        "laid_out_for": asdict(laid_out_for),
        "planner": planner.value,
        "templates": templates,
        "sparing": sparing,
        "planning": planning if math.isfinite(planning) else None,
        "budget": budget if math.isfinite(budget) else None,
        "memory": memory if math.isfinite(budget) else None,
    }
    try:
        reply = _ask(encode(request, captured.bytecode()))
    except ChildDied as death:
        raise CaptureError(f"the process that made its kernels {death}") from None
    except ChildFailed as failure:
        _logger.debug("%s: the process that makes kernels %s", captured.name, failure)
        return None
    for logger, level, message in reply["log"]:
        logging.getLogger(logger).log(level, "%s", message)
    if reply["outcome"] == "spent":
        MAKER.shut_down()  # It was stopped in the middle of something.
        if reply["reason"] == "memory":
            raise NotWorthStitching(
                f"its kernels were not made in {format_bytes(memory)} of memory: JAX_STITCH_BUDGET=inf, or mode='now', "
                "gives them all that they take"
            )
        raise NotWorthStitching(
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
    return load(name)


def _request(captured: Capture, device: Device) -> dict[str, Any]:
    """What the child has to know of a function, of the device and of this process."""
    config: Any = jax.config  # whose typing lacks its flags
    return {
        "function": captured.name,
        "parameters": _types(captured.parameters),
        "results": _types(captured.results),
        "donated": captured.donated,
        "callbacks": len(captured.callbacks),
        "device": asdict(device),
        # XLA compiles for a GPU only where it is; and what was given as HLO is planned as it is.
        "text": captured.text if captured.given or (not device.target.is_host and device.attached) else None,
        "compiled": (captured.compiled.text, captured.compiled.seconds) if captured.compiled is not None else None,
        "environment": dict(os.environ) | choice.inherited(),
        "options": {option: getattr(config, option, None) for option in OPTIONS},
        "conditions": conditions(device),
        "log": logging.getLogger("jax_stitch").getEffectiveLevel(),
    }


def _most_memory() -> int:
    """The most bytes that this process has had in memory."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def conditions(device: Device) -> dict[str, object]:
    """What has to be the same in both processes for the child's program to be the one that this process would make."""
    facts = surroundings(device)
    del facts["device"]  # It is the parent's, with what was measured there.
    return facts | {"source": source()}


def _types(of: Sequence[jax.ShapeDtypeStruct]) -> list[tuple[tuple[int, ...], str]]:
    return [(a.shape, a.dtype.name) for a in of]


def _ask(request: bytes) -> dict[str, Any]:
    try:
        return MAKER.ask(request, _TIMEOUT, _told)[0]
    except ChildDied:  # Perhaps it had waited long enough and was about to end.
        if background.ending():
            raise
    return MAKER.ask(request, _TIMEOUT, _told)[0]


def _told(header: Mapping[str, Any]) -> None:
    """What the child says on its way."""
    tell_count(*header["compiled"])
