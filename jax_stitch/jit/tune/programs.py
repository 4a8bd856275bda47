"""The races that there are: a unit's candidates against XLA's own kernels, and a whole function against ``jax.jit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jax_stitch.backend.compile import Kernel, KernelCompileError, compile_all, target_of
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.jit.programs.program import RebuiltProgram
from jax_stitch.jit.tune.arguments import argument_sets
from jax_stitch.jit.tune.candidates import Contender
from jax_stitch.jit.tune.preselected import fastest
from jax_stitch.jit.tune.race import Program, Race
from jax_stitch.jit.tune.units import Unit
from jax_stitch.pipeline import Launcher, Stitched, launcher, segment
from jax_stitch.util import store

_UNIT_SECONDS, _WHOLE_SECONDS = 1.0, 3.0

_METHOD = 3
"""Of measuring: another one's times are others."""


def unit_race(unit: Unit, contenders: Sequence[Contender], device: Device) -> Race:
    """Return a race of XLA's own kernels for a unit, then its candidates, on ``device``."""
    by_xla = replay(StitchedGraph(unit.by_xla))
    in_loop = any(k.launches > 1 for k in unit.kernels)
    # Of a loop, what one step leaves in the cache the next one finds there.
    first = store.key(kind="XLA", program=_text(by_xla, unit.arguments), method=_METHOD, in_cache=in_loop)
    keys = [first, *(c.key for c in contenders)]

    def programs() -> Mapping[str, Program]:
        made = {first: by_xla}
        launchers = _launchers(contenders, device)
        for candidate, key in zip(contenders, keys[1:], strict=True):
            launch = launchers.get(key)
            if launch is not None:
                made[key] = replay(StitchedGraph(unit.own_graph, tuple(segment(k, launch) for k in candidate.kernels)))
        return made

    return Race(tuple(keys), programs, lambda: argument_sets(unit.arguments, device, in_loop), _UNIT_SECONDS)


def _launchers(contenders: Sequence[Contender], device: Device) -> dict[str, Launcher]:
    """Return what runs the kernels of each candidate that is worth a program of XLA's, by its key; the planned one is
    the user's to hear of if it does not compile.
    """
    compiled: dict[str, dict[int, Kernel]] = {}
    for candidate in contenders:
        sources = list({id(k.source): k.source for k in candidate.kernels}.values())
        try:
            kernels = compile_all(sources, target_of(device))
        except KernelCompileError:
            if candidate is contenders[0]:
                raise
            continue
        compiled[candidate.key] = dict(zip(map(id, sources), kernels, strict=True))
    best = fastest([c for c in contenders if c.key in compiled], compiled, device)
    return {candidate.key: launcher(compiled[candidate.key]) for candidate in best}


def whole_race(plans: Sequence[Stitched], device: Device) -> tuple[Race, tuple[str, ...]]:
    """Return a race of ``jax.jit`` of a captured function, then the function as each of ``plans`` has it, on
    ``device``.

    Also the plans' keys: plans may be one program.
    """
    capture = plans[0].capture
    assert isinstance(capture, Capture)  # What was sent to another process is not measured there.
    types = capture.parameters
    plain = RebuiltProgram(capture.name, capture.bytecode(), ())
    first = store.key(kind="function", program=capture.stablehlo(), method=_METHOD)

    def by_jit(arrays: Sequence[Any]) -> list[Any]:
        return plain(arrays, capture.results)

    programs: dict[str, Program] = {first: by_jit}
    keys = []
    for plan in plans:
        run = plan.compile(target_of(device))
        keys.append(store.key(kind="stitched function", program=_text(run, types), method=_METHOD))
        programs.setdefault(keys[-1], run)
    race = Race(tuple(programs), lambda: programs, lambda: argument_sets(types, device), _WHOLE_SECONDS)
    return race, tuple(keys)


def _text(program: Program, types: Sequence[jax.ShapeDtypeStruct]) -> str:
    """Return a program before XLA; the same in every process."""

    def run(*arrays: Any) -> list[Any]:
        return list(program(arrays))

    return jax.jit(run).lower(*types).as_text()
