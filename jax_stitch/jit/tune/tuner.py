"""A planned function with what was measured to be fastest: its kernels laid out again, or left to XLA, or all of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import jax

from jax_stitch.devices import Device
from jax_stitch.fusion import FusionPlan
from jax_stitch.fusion.withdraw import withdrawn
from jax_stitch.jit.library import Measured, Station, station_of
from jax_stitch.jit.tune import race
from jax_stitch.jit.tune.arguments import TooLarge
from jax_stitch.jit.tune.candidates import candidates, planned
from jax_stitch.jit.tune.outside_tracing import apart
from jax_stitch.jit.tune.programs import unit_race, whole_race
from jax_stitch.jit.tune.units import Unit, by_graph, is_endless, numbered, units_of
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.util import log, progress
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.options.autotune import Autotune

_logger = logging.getLogger(__name__)

_NEARLY = 0.97
"""Another schedule has to take this share of the planned one's time, or less, to take its place."""

EVERY = " with every kernel"
"""The plan that has those kernels too that XLA's own are faster than."""

_ENDLESS = "how often a loop in it runs depends on its values"
_CALLS_PYTHON = "it calls back to Python, which is not to see other arguments than the user's"
_TOO_LARGE = "its arguments are too large to be made for the purpose"


def tune(
    stitched: Stitched, device: Device, choice: Autotune, others: Mapping[str, Stitched] = MappingProxyType({})
) -> Stitched:
    """Return ``stitched`` with the fastest that ``choice`` has tried on ``device``, which is attached and runs it.

    A unit of kernels that does not beat XLA's own is left to XLA, unless the function with all of them is faster; and
    where the function as a whole does not beat ``jax.jit`` all of it is: then it has no kernels. ``others`` are other
    plans of the same function by their names, tuned likewise, of which one may win. What could not be measured stays as
    planned; the plan's notes say so. Times come from the library where it has them.
    """
    if choice is Autotune.OFF or not stitched.kernels:
        return stitched
    start = time.perf_counter()
    tuner = _Tuner(stitched.capture.name, station_of(device), stitched.device, device, choice)
    with apart(device):
        tuned = tuner.kernels(stitched)
        plans = {f" by {name}": tuner.kernels(other) for name, other in others.items()}
        if len(tuned.kernels) < len(stitched.kernels):
            # What wins by itself need not be what XLA makes of it in the function, where it also has to write it.
            plans[EVERY] = stitched
        fastest = tuner.whole(tuned, plans)
    seconds = time.perf_counter() - start
    _logger.log(log.level(), "%s: autotuned on %s in %.2f s", stitched.capture.name, device.name, seconds)
    return replace(fastest, seconds=MappingProxyType({**stitched.seconds, "autotune": seconds}))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to become of a unit: the candidate of this number, or for a reason none."""

    winner: int = 0
    measured: tuple[float, float] | None = None
    """Seconds, and of XLA's own."""
    reason: str = ""
    unmeasured: str = ""
    """Why there is no time; then it stays as planned."""


@dataclass(frozen=True, slots=True)
class _Tuner:
    name: str
    station: Station
    planned_for: Device
    device: Device
    choice: Autotune
    known: dict[tuple[str, bool], _Verdict] = field(default_factory=dict)
    """By what a unit is planned to be, and whether it is in a loop."""

    def kernels(self, stitched: Stitched) -> Stitched:
        """Return the function with the best for each of its units."""
        plan, kernels = self.plan(stitched.plan, by_graph(stitched.kernels))
        return replace(stitched, plan=plan, kernels=numbered(kernels))

    def plan(
        self, plan: FusionPlan, kernels: Mapping[int, Sequence[StitchedKernel]]
    ) -> tuple[FusionPlan, list[StitchedKernel]]:
        """Return a plan and those of the loops and branches in it, tuned, and their kernels; ``kernels`` are by
        graph.
        """
        own, notes = list(kernels.get(id(plan.graph), ())), list(plan.notes)
        reasons: dict[int, str] = {}
        chosen: list[StitchedKernel] = []
        units = units_of(plan.graph, own)
        for n, unit in enumerate(units):
            names = ", ".join(k.source.name for k in unit.kernels)
            alike = planned(unit).key, any(k.launches > 1 for k in unit.kernels)
            if alike not in self.known:  # The layers of a model are measured once.
                progress.tell(f"{self.name}: measuring {names} ({n + 1} of {len(units)})")
                self.known[alike] = self._judge(unit)
                _logger.debug("%s: %s: %s", self.name, names, self.known[alike])
            verdict = self.known[alike]
            if verdict.unmeasured:
                notes.append(f"autotune: {names} is not measured: {verdict.unmeasured}")
            if verdict.reason:
                reasons |= dict.fromkeys(unit.numbers, verdict.reason)
                continue
            winner = (
                candidates(unit, self.planned_for, self.choice)[verdict.winner] if verdict.winner else planned(unit)
            )
            chosen += (replace(k, measured=verdict.measured) for k in winner.kernels)
        children = {}
        left = withdrawn(plan, reasons)
        own = [replace(k, scheduled=replace(k.scheduled, graph=left.graph)) for k in chosen]
        of_children: list[StitchedKernel] = []
        for key, child in plan.children.items():
            children[key], more = self.plan(child, kernels)
            of_children += more
        parts = tuple(tuple(p.pattern for p in k.scheduled.parts) for k in own)
        return replace(left, kernels=parts, children=children, notes=tuple(notes)), own + of_children

    def _judge(self, unit: Unit) -> _Verdict:
        if unit.is_endless:
            return _Verdict(unmeasured=_ENDLESS)
        contenders = candidates(unit, self.planned_for, self.choice)
        try:
            with _unmeasured():
                first, *times = race.run(unit_race(unit, contenders, self.device), self.station).values()
        except _Unmeasured as why:
            return _Verdict(unmeasured=str(why))
        winner = 0
        for n, measured in enumerate(times):
            if measured.seconds < times[winner].seconds * (_NEARLY if winner == 0 else 1.0):
                winner = n
        best = times[winner]
        if best.seconds < first.seconds:
            return _Verdict(winner, (best.seconds, first.seconds))
        return _Verdict(reason=_slower("XLA's own kernels take", first, "a stitched one", best))

    def whole(self, stitched: Stitched, others: Mapping[str, Stitched]) -> Stitched:
        """Return the plan of the function, or another, that is fastest; without kernels where ``jax.jit`` is not
        slower.

        ``others`` are by what is told of them after "stitched".
        """
        racing = {name: s for name, s in {"": stitched, **others}.items() if s.kernels}
        if not racing:
            note = "autotune: no kernel is faster than XLA's own: the function runs as jax.jit runs it"
            return _noted(stitched, note)
        progress.tell(f"{self.name}: measuring the whole function")
        try:
            first, times = self._race_whole(list(racing.values()))
        except _Unmeasured as why:
            return _noted(stitched, f"autotune: the whole function is not measured: {why}")
        best, name = min(zip(times, racing, strict=True), key=lambda pair: pair[0].seconds)
        if race.beats_first(best, first):
            told = f"{format_seconds(first.seconds)}, stitched{name} {format_seconds(best.seconds)}"
            return _noted(racing[name], f"autotune: jax.jit takes {told}")
        if not stitched.kernels:
            note = "no kernel is faster than XLA's own, nor the function with all of them"
            return _noted(stitched, f"autotune: {note}: it runs as jax.jit runs it")
        reason = _slower("as a whole the function takes, under jax.jit,", first, "stitched", best)
        if best.seconds < first.seconds:
            reason += f", which is noise: faster in {best.ahead:.0%} of {best.rounds} rounds"
        left = replace(stitched, plan=_left(stitched.plan, reason), kernels=())
        return _noted(left, f"autotune: {reason}: it runs as jax.jit runs it")

    def _race_whole(self, plans: Sequence[Stitched]) -> tuple[Measured, list[Measured]]:
        """Return the times of ``jax.jit`` and of each plan."""
        if plans[0].capture.is_partitioned:
            raise _Unmeasured("it runs on several devices")
        if plans[0].capture.callbacks:
            raise _Unmeasured(_CALLS_PYTHON)
        if is_endless(plans[0].plan.graph):
            raise _Unmeasured(_ENDLESS)
        with _unmeasured():
            entry, keys = whole_race(plans, self.device)
            times = race.run(entry, self.station)
        return times[entry.keys[0]], [times[key] for key in keys]


class _Unmeasured(Exception):
    """There is no time for something; the argument says why."""


@contextmanager
def _unmeasured() -> Iterator[None]:
    try:
        yield
    except TooLarge:
        raise _Unmeasured(_TOO_LARGE) from None
    except jax.errors.JaxRuntimeError as failure:  # No memory for one of the programs, or what a library call raises.
        raise _Unmeasured(f"it failed with other arguments ({str(failure).splitlines()[0]})") from failure


def _slower(one: str, first: Measured, other: str, best: Measured) -> str:
    return f"measured: {one} {format_seconds(first.seconds)}, {other} {format_seconds(best.seconds)}"


def _left(plan: FusionPlan, reason: str) -> FusionPlan:
    """Return a plan without kernels."""
    children = {key: _left(child, reason) for key, child in plan.children.items()}
    return replace(withdrawn(plan, dict.fromkeys(range(len(plan.kernels)), reason)), children=children)


def _noted(stitched: Stitched, note: str) -> Stitched:
    return replace(stitched, plan=replace(stitched.plan, notes=(*stitched.plan.notes, note)))
