"""From a capture to its rebuilt program: from the cache, or made."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from jax_stitch.backend.compile import effort, target_of
from jax_stitch.backend.launch import choice
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.jit import stages
from jax_stitch.jit.programs import verdicts
from jax_stitch.jit.programs.identity import entry_name
from jax_stitch.jit.programs.on_disk import keep, load
from jax_stitch.jit.programs.record import GivenUp, NotWorthStitching, Record, current
from jax_stitch.jit.rebuilt.elsewhere import make_elsewhere
from jax_stitch.jit.stitching.make import make, stitched
from jax_stitch.util import store
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify


def rebuild(
    captured: Capture,
    device: Device,
    planner: PlannerName,
    scheduled_for: Device | None = None,
    templates: str = "",
    autotune: Autotune = Autotune.OFF,
    verify: Verify = Verify.OFF,
    sparing: bool = False,
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a captured function of its entry's parameters, ready to run on ``device``: its kernels are loaded.

    They are laid out for ``scheduled_for``, by default the same device, by ``templates`` where there are any, and
    chosen by what ``autotune`` measures. Where nobody waits for it (``effort.low``), another process does the work if
    it can. ``verify`` says what becomes of kernels that disagree with XLA. Where it is ``sparing``, what is not worth
    the time raises ``NotWorthStitching``, also in later processes, unless something had only run out (``GivenUp``).
    What has no kernels at all raises it too, and is planned anew by each process. Raises ``Unstitchable``, and what any
    stage raises.
    """
    if captured.unsupported is not None:
        raise Unstitchable(captured.unsupported)
    laid_out_for = scheduled_for or device
    _settle_launcher(device)
    if captured.partitioning is not None:  # Its collectives mean nothing outside the shard_map that it is part of.
        return _part(captured, device, (laid_out_for, planner, templates, autotune, verify))
    record = current()
    name = entry_name(captured, device, laid_out_for, planner, templates, autotune, verify, sparing)
    seen = bool(stages.wanted())  # What is kept on disk has no stages to be seen.
    record.programs.append(name)
    if sparing and not seen:
        _heed_verdict(name)
    program, made = None if seen else load(name), None
    try:
        if program is None and not seen and effort.low.get() and autotune is Autotune.OFF and verify is Verify.OFF:
            made = make_elsewhere(captured, device, laid_out_for, planner, templates, sparing)
        if program is None:
            if made is None:
                made = make(captured, device, laid_out_for, planner, templates, autotune, verify, sparing)
            # A process that finds its programs on disk has no use for what says graphs again in JAX.
            from jax_stitch.jit.rebuilt.finish import finish

            record.add(Record(planning=made.planning, compiling=made.compiling, lasting=made.lasting))
            program = finish(captured, made)
            if made.lasting and program.launches:
                keep(name, program)
    except GivenUp:
        record.lasting = False
        raise
    except NotWorthStitching as better_left:
        verdicts.keep(name, verdicts.Verdict(False, str(better_left)))
        raise
    form = store.key(module=hashlib.sha256(program.module).hexdigest(), kernels=program.kernels)
    record.add(Record(forms=[form], kernels=program.launches, replaced=program.replaced))
    if not program.launches:  # XLA compiles its own program better than what it has made of it.
        record.lasting = False
        raise GivenUp("no kernel was found for any part of it")
    program = program.for_function(captured.place)
    return functools.partial(program, results=captured.results, callbacks=captured.callbacks, effects=captured.effects)


def _part(captured: Capture, device: Device, how: tuple[Any, ...]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a part of a ``shard_map``, planned and compiled as ``stitched`` is told."""
    start = time.perf_counter()
    part = stitched(captured, device, *how)
    stages.dump(captured, part)
    planned = time.perf_counter()
    run = part.compile(target_of(device))
    compiled = time.perf_counter()
    form = store.key(sources=[(kernel.number, kernel.source.code) for kernel in part.kernels])
    launches = sum(kernel.launches for kernel in part.kernels)
    current().add(Record(forms=[form], kernels=launches, planning=planned - start, compiling=compiled - planned))
    return run


def _settle_launcher(device: Device) -> None:
    """Find out, once in a process, how kernels are launched on an attached GPU."""
    if device.target.is_host or not device.attached:
        return
    if not choice.is_settled():
        from jax_stitch.jit.tune.canary import choose

        choose(device)
    choice.ready()


def _heed_verdict(name: str) -> None:
    """Raise ``NotWorthStitching`` for what is known to be slower, or not worth it, unless it is measured now."""
    known, record = verdicts.load(name), current()
    record.kept = known
    if known is not None and not known.stitched and not (record.measures and known.is_open):
        raise NotWorthStitching(known.reason)
