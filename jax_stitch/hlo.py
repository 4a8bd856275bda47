"""``plan_hlo`` and ``stitch_hlo``: any dump of HLO, planned and run like a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import jax

from jax_stitch import devices
from jax_stitch.api import stitch_jit
from jax_stitch.frontend.capture.errors import CaptureError, CudaPluginMissing, HloFileError, UnstitchableError
from jax_stitch.frontend.capture.program import ONLY_LOOKED_AT
from jax_stitch.frontend.hlo_files import HloProgram, read
from jax_stitch.jit.tiers.stitched_function import AutotuneChoice, PlannerChoice
from jax_stitch.util.formatting import one_line, shorten
from jax_stitch.util.options.autotune import autotune_for
from jax_stitch.util.options.planner_names import PlannerName, planner_name
from jax_stitch.util.options.strictness import strict_for
from jax_stitch.util.user_errors import api_boundary

if TYPE_CHECKING:
    from jax_stitch.devices import Device
    from jax_stitch.inspect.report.plan import Plan

_T = TypeVar("_T")

Source = str | os.PathLike[str] | bytes


class HloFunction:
    """A program from a file as a function of arrays, stitched; ``plain`` is the same under XLA alone.

    It takes one array for each of ``parameters`` and returns an array, or a tuple of arrays where the program's root is
    a tuple. Tuples among the parameters or in the root are taken and given leaf by leaf.
    """

    def __init__(self, program: HloProgram, **options: Any) -> None:
        self.program = program
        self.function = program.function()
        self.stitched = stitch_jit(self.function, **options)
        self._plain = jax.jit(self.function)

    @property
    def parameters(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of the arguments."""
        return self.program.parameters

    @property
    def results(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of the results."""
        return self.program.results

    def __call__(self, *arrays: Any) -> Any:
        """Return the results, by way of stitched kernels."""
        return self._call(self.stitched, arrays)

    def plain(self, *arrays: Any) -> Any:
        """Return the results as XLA alone computes them."""
        return self._call(self._plain, arrays)

    def plan(self, device: str | None = None, **options: Any) -> Plan:
        """Return the plan of the program for a device, as ``plan_hlo`` gives it."""
        return _plan(self.program, self.stitched, device, options)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait with ``mode="async"`` until it is stitched, and return whether it is."""
        return bool(self.stitched.wait(timeout))

    def __repr__(self) -> str:
        return f"<stitched HLO {self.program.name} of {self.program.where}: {', '.join(self.program.signature())}>"

    def _call(self, function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
        self.program.require_runnable()
        with self.program.types():
            return function(*self.program.taken(arrays))


@api_boundary
def plan_hlo(
    text_or_path: Source,
    device: str | None = None,
    *,
    module: str | int | None = None,
    optimize: bool | None = None,
    planner: PlannerChoice | None = None,
    templates: str | None = None,
    autotune: AutotuneChoice | None = None,
    strict: bool | None = None,
) -> Plan:
    """Return the fusion plan of a program in HLO for a device, which need not be there (see ``jax_stitch.devices``).

    ``text_or_path`` is a path, HLO or StableHLO text, or the bytes of a file: HLO text, a serialized HLO proto,
    StableHLO text or bytecode, whatever the file is called. ``module`` chooses one of several modules, by name or
    number; by default the first. Text from before XLA's passes is optimised by XLA for the device first; text that
    has been optimised is planned as it is, its fusions opened. ``optimize`` overrides how that is told: True has XLA
    optimise also what it has optimised already, as for another device; False plans what is there.

    The others are those of ``stitch_jit(f).plan``. Raises ``HloFileError``, which says what to do.
    """
    program = read(text_or_path, module, optimize)
    options = {"planner": planner, "templates": templates, "autotune": autotune, "strict": strict}
    return _plan(program, stitch_jit(program.function()), device, options)


@api_boundary
def stitch_hlo(
    text_or_path: Source, *, module: str | int | None = None, optimize: bool | None = None, **options: Any
) -> HloFunction:
    """Return a program in HLO as a function of arrays that runs it stitched, on the CPU or the attached GPU.

    ``f(*arrays)`` takes the entry's parameters in order; ``f.plain(*arrays)`` is the same under XLA alone,
    ``f.plan(device=None)`` the plan. Arguments are never donated, whatever the program aliases. ``text_or_path``,
    ``module`` and ``optimize`` as in ``plan_hlo``; the others (``mode``, ``planner``, ``templates``, ``autotune``,
    ``strict``, ``verify``) as in ``stitch_jit``. Raises ``HloFileError``, also for what can be planned but not run:
    programs for several devices, without the values of constants, or that talk to the host.
    """
    program = read(text_or_path, module, optimize)
    program.require_runnable()
    return HloFunction(program, **options)


@contextmanager
def _looking_at(program: HloProgram) -> Iterator[None]:
    """Have the types that the program needs, and let XLA compile it where it can do no harm."""
    token = ONLY_LOOKED_AT.set(True)
    try:
        with program.types():
            yield
    finally:
        ONLY_LOOKED_AT.reset(token)


def _plan(program: HloProgram, stitched: Any, device: str | None, options: dict[str, Any]) -> Plan:
    wanted = devices.get(device)
    try:
        with _looking_at(program):
            if program.partitions > 1:
                plan = _plan_of_part(program, wanted, options)
            else:
                plan = stitched.plan(*program.parameters, device=device, **options)
    except CudaPluginMissing:
        raise
    except CaptureError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise HloFileError(
            f"{program.where}: {shorten(one_line(lines[0].rstrip(':')), 300)}\n"
            f"plan it for the kind of device that it was made for, or take out what {wanted.name} does not have"
        ) from error

    def later(make: Callable[[], _T]) -> Callable[[], _T]:
        def run() -> _T:
            with _looking_at(program):  # Counts and texts are made when they are first asked for.
                return make()

        return run

    notes = list(program.notes)
    if not program.made_for(wanted.kind):
        notes.append(f"XLA has optimised it for another kind of device: with `optimize` it does so for {wanted.name}")
    return replace(
        plan,
        notes=(*plan.notes, *notes),
        count_xla=later(plan.count_xla),
        count_stitched=later(plan.count_stitched),
        final_hlo=None if plan.final_hlo is None else later(plan.final_hlo),
        rebuilt_hlo=None if plan.rebuilt_hlo is None else later(plan.rebuilt_hlo),
    )


def _plan_of_part(program: HloProgram, device: Device, options: dict[str, Any]) -> Plan:
    from jax_stitch.frontend.hlo_files.parts import part_of
    from jax_stitch.inspect.report.planning import make_plan

    part = part_of(program, device, lambda text: read(text, None, False))
    planner = planner_name(options.get("planner") or PlannerName.BEAM)
    asked = options.get("templates") or "", autotune_for(options.get("autotune"))
    plan = make_plan(part.function, part.types, device, planner, part.placement, *asked)
    if plan.unstitched is not None and strict_for(options.get("strict")):
        raise UnstitchableError(program.name, plan.unstitched)
    return plan
