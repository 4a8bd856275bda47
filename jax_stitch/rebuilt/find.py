"""From a capture to its rebuilt program: from the cache, or made."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from jax_stitch import stages, store
from jax_stitch.capture import Capture
from jax_stitch.capture.errors import Unstitchable
from jax_stitch.compile import effort, target_of
from jax_stitch.devices import Device
from jax_stitch.launch import choice
from jax_stitch.options.autotune import Autotune
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.options.verification import Verify
from jax_stitch.programs import verdicts
from jax_stitch.programs.identity import entry_name
from jax_stitch.programs.on_disk import keep, load
from jax_stitch.programs.record import NotWorthStitching, current
from jax_stitch.rebuilt.elsewhere import make_elsewhere
from jax_stitch.stitching.make import make, stitched


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
    """A captured function of its entry's parameters, ready to run on ``device``: its kernels are loaded.

    They are laid out for ``scheduled_for``, by default the same device, by ``templates`` where there are any, and
    chosen by what ``autotune`` measures. Where nobody waits for it (``effort.low``), another process does the work if
    it can. ``verify`` says what becomes of kernels that disagree with XLA. Where it is ``sparing``, what is not worth
    the time raises ``NotWorthStitching``, also in later processes; so does what has no kernels at all. Raises
    ``Unstitchable``, and what any stage raises.
    """
    if captured.unsupported is not None:
        raise Unstitchable(captured.unsupported)
    laid_out_for = scheduled_for or device
    _settle_launcher(device)
    if captured.partitioning is not None:  # Its collectives mean nothing outside the shard_map that it is part of.
        part = stitched(captured, device, laid_out_for, planner, templates, autotune, verify)
        stages.dump(captured, part)
        current().kernels += sum(kernel.launches for kernel in part.kernels)
        current().forms.append(store.key(sources=[(kernel.number, kernel.source.code) for kernel in part.kernels]))
        return part.compile(target_of(device))
    name = entry_name(captured, device, laid_out_for, planner, templates, autotune, verify, sparing)
    seen = bool(stages.wanted())  # What is kept on disk has no stages to be seen.
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
            from jax_stitch.rebuilt.finish import finish

            program = finish(captured, made)
            keep(name, program)
    except NotWorthStitching as better_left:
        verdicts.keep(name, verdicts.Verdict(False, str(better_left)))
        raise
    record = current()
    record.programs.append(name)
    record.forms.append(store.key(module=hashlib.sha256(program.module).hexdigest(), kernels=program.kernels))
    record.kernels, record.replaced = record.kernels + program.launches, record.replaced + program.replaced
    if not program.launches:  # XLA compiles its own program better than what it has made of it.
        raise NotWorthStitching("no kernel was found for any part of it")
    return functools.partial(program, results=captured.results, callbacks=captured.callbacks, effects=captured.effects)


def _settle_launcher(device: Device) -> None:
    """Finds out, once in a process, how kernels are launched on an attached GPU."""
    if device.target.is_host or not device.attached:
        return
    if not choice.is_settled():
        from jax_stitch.tune.canary import choose

        choose(device)
    choice.ready()


def _heed_verdict(name: str) -> None:
    """Raises ``NotWorthStitching`` where the program is known to be slower, or worth nothing."""
    known = verdicts.load(name)
    current().kept = known
    if known is not None and not known.stitched:
        raise NotWorthStitching(known.reason)
