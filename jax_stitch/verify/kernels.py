"""Kernels run once beside XLA's own computation of the same operations; what disagrees is left to XLA."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import store
from jax_stitch.compile import target_of
from jax_stitch.compile.surroundings import surroundings
from jax_stitch.devices import Device
from jax_stitch.fusion import FusionPlan
from jax_stitch.graph.model import TensorType
from jax_stitch.launch.element_types import numpy_dtype
from jax_stitch.options.verification import Verify, WrongKernel
from jax_stitch.pipeline import Stitched, StitchedKernel, launcher, segment, work_of
from jax_stitch.programs.fallback import StitchWarning
from jax_stitch.programs.identity import source
from jax_stitch.replay import StitchedGraph, replay
from jax_stitch.tune.apart import apart
from jax_stitch.tune.units import Unit, by_graph, units_of
from jax_stitch.tune.without import without
from jax_stitch.util import log, progress
from jax_stitch.verify.arguments import Array, arguments, moved
from jax_stitch.verify.judge import disagreement

_logger = logging.getLogger(__name__)

_KIND = "verdicts"
_SOUND = b"sound"

_MOVES = 3
"""How often the reference is computed again on moved arguments."""

_TRIES = 2
"""Arguments of each kind on which a kernel has to disagree: a comparison may go the other way once, by chance."""

MOST_WORK = 1 << 28
"""Bytes, or of a loop what counts as such, above which a kernel is not run: it would take seconds."""

Run = Callable[[Sequence[Array]], list[Array]]


def verified(stitched: Stitched, device: Device, choice: Verify) -> Stitched:
    """``stitched`` without the kernels that compute something else than XLA on ``device``, which runs them.

    Each disagreement is a warning, or under ``Verify.RAISE`` raises ``WrongKernel``. Verdicts are kept on disk. What
    could not be run is noted on the plan.
    """
    if choice is Verify.OFF or not stitched.kernels:
        return stitched
    start = time.perf_counter()
    verifier = _Verifier(stitched, device)
    with apart(device):
        verifier.judge(stitched.plan, by_graph(stitched.kernels))
    for told in verifier.wrong:
        message = (
            f"{stitched.capture.name}: {told}. This is an internal error of JAX Stitch: please report it, with what "
            "JAX_STITCH_DEBUG=1 writes about it."
        )
        if choice is Verify.RAISE:
            raise WrongKernel(message)
        warnings.warn(f"{message} These operations are left to XLA.", StitchWarning, stacklevel=2)
    seconds = time.perf_counter() - start
    _logger.log(log.level(), "%s: kernels verified in %.2f s", stitched.capture.name, seconds)
    times = MappingProxyType({**stitched.seconds, "verify": seconds})
    left = without(stitched, verifier.reasons)
    noted = replace(left.plan, notes=(*left.plan.notes, *verifier.notes))
    return replace(left, plan=noted, seconds=times)


@dataclass(frozen=True, slots=True)
class _Verifier:
    stitched: Stitched
    device: Device
    known: dict[str, str] = field(default_factory=dict)
    """What is wrong with a unit, by its key; empty where nothing is."""
    wrong: list[str] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why kernels are to go, by their numbers."""
    notes: list[str] = field(default_factory=list)

    def judge(self, plan: FusionPlan, kernels: Mapping[int, Sequence[StitchedKernel]]) -> None:
        """Runs the kernels of a plan, and of the loops and branches in it; ``kernels`` are by graph."""
        for unit in units_of(plan.graph, kernels.get(id(plan.graph), ())):
            names = ", ".join(k.source.name for k in unit.kernels)
            unseen = _unseen(unit)
            if unseen:
                self.notes.append(f"verify: {names} was not run: {unseen}")
            elif told := self._told(unit, names):
                why = f"verify: a kernel of it computed something else: {told}"
                self.reasons.update((k.number, why) for k in unit.kernels)
        for child in plan.children.values():
            self.judge(child, kernels)

    def _told(self, unit: Unit, names: str) -> str:
        key = self._key(unit)
        if key not in self.known:
            kept = store.read(_KIND, key)
            if kept is None:
                progress.tell(f"{self.stitched.capture.name}: verifying {names}")
                told = self._judged(unit)
                store.write(_KIND, key, told.encode() or _SOUND)
            else:
                told = "" if kept == _SOUND else kept.decode()
            self.known[key] = told
            if told:
                operations = ", ".join(dict.fromkeys(_operations(unit)))
                self.wrong.append(f"the kernel {names} for {operations} disagrees with XLA ({told})")
        return self.known[key]

    def _key(self, unit: Unit) -> str:
        program = jax.jit(lambda *arrays: replay(StitchedGraph(unit.by_xla))(arrays)).lower(*unit.arguments).as_text()
        sources = [k.source.text for k in unit.kernels]
        return store.key(judge=source(), program=program, sources=sources, **surroundings(self.device))

    def _judged(self, unit: Unit) -> str:
        sources = list({id(k.source): k.source for k in unit.kernels}.values())
        compiled = replace(self.stitched, kernels=unit.kernels).compile_kernels(target_of(self.device))
        launch = launcher(dict(zip(map(id, sources), compiled, strict=True)))
        segments = tuple(segment(k, launch) for k in unit.kernels)
        ours, xla = _run(StitchedGraph(unit.alone, segments)), _run(StitchedGraph(unit.by_xla))
        return next((told for special in (False, True) if (told := _compared(unit, ours, xla, special))), "")


def _compared(unit: Unit, ours: Run, xla: Run, special: bool) -> str:
    """What is wrong on some arguments of one kind, and on others too."""
    unit_of_rounding = _coarsest(unit)
    told: str | None = ""
    for attempt in range(_TRIES):
        given = arguments(unit.arguments, attempt, special)
        wanted, got = xla(given), ours(given)
        if all(_same_bits(g, w) for g, w in zip(got, wanted, strict=True)):
            return ""
        others = [xla(moved(given, 2 * unit_of_rounding, n)) for n in range(_MOVES)]
        results = zip(got, wanted, *others, strict=True)
        judged = (disagreement(g, w, ms, unit_of_rounding, special=special) for g, w, *ms in results)
        told = next((t for t in judged if t), None)
        if told is None:
            return ""
    return told or ""


def _run(program: StitchedGraph) -> Run:
    run = jax.jit(lambda *arrays: list(replay(program)(arrays)))
    return lambda arrays: [np.asarray(r) for r in run(*(jnp.asarray(a) for a in arrays))]


def _same_bits(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _coarsest(unit: Unit) -> float:
    """The unit in the last place of the coarsest floating type among a unit's values."""
    types = [unit.alone[i].type for k in unit.kernels for p in k.scheduled.parts for i in p.pattern.inside]
    types += [unit.alone[i].type for i in (*unit.alone.parameters, *unit.alone.results)]
    dtypes = {numpy_dtype(t) for t in types if isinstance(t, TensorType)}
    floats = [d for d in dtypes if jnp.issubdtype(d, jnp.inexact)]
    return max((float(jnp.finfo(d).eps) for d in floats), default=0.0)


def _operations(unit: Unit) -> list[str]:
    """The names of what a unit's kernels compute."""
    graph = unit.alone
    nodes = [graph[i] for k in unit.kernels for p in k.scheduled.parts for i in sorted(p.pattern.nodes)]
    return [n.op for n in nodes if n.op not in ("parameter", "constant", "get-tuple-element")]


def _unseen(unit: Unit) -> str:
    """Why a unit is not run, if it is not."""
    if unit.is_endless:
        return "how often a loop in it runs depends on its values"
    moved_bytes = sum(k.scheduled.bytes_read + k.scheduled.bytes_written for k in unit.kernels)
    if moved_bytes + sum(work_of(k) or 0 for k in unit.kernels) > MOST_WORK:
        return "it would take seconds"
    return ""
