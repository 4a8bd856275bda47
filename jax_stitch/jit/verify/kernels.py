"""Kernels run once beside XLA's own computation of the same operations; what disagrees is left to XLA."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.backend.compile import CompilerTimeout, target_of
from jax_stitch.backend.compile.surroundings import surroundings
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import Device
from jax_stitch.frontend.replay import StitchedGraph, loops_bounded, replay, rounded_otherwise
from jax_stitch.fusion import FusionPlan
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.jit.programs.fallback import StitchWarning
from jax_stitch.jit.programs.source import source
from jax_stitch.jit.tune.in_time import MOST_SLOW
from jax_stitch.jit.tune.outside_tracing import apart
from jax_stitch.jit.tune.units import Unit, by_graph, needed, units_of
from jax_stitch.jit.tune.without import without
from jax_stitch.jit.verify.arguments import Array, Kind, arguments, moved
from jax_stitch.jit.verify.exact import widened
from jax_stitch.jit.verify.judge import disagreement, overflows, wanders
from jax_stitch.pipeline import Stitched, StitchedKernel, launcher, segment
from jax_stitch.schedule.work import work_of
from jax_stitch.util import log, progress, store
from jax_stitch.util.options.verification import Verify, WrongKernel

_logger = logging.getLogger(__name__)

_KIND = "verdicts"
_SOUND = b"sound"

_MOVES = 3
"""How often the reference is computed again on moved arguments, and how often with other roundings."""

_CONFIRMING, _AT_ONCE = 48, 9
"""How often with other roundings before a kernel is called wrong: of many integers made of the digits of roundings, a
few are the same in any three runs by chance."""

_TRIES = 2
"""Arguments of each kind on which a kernel has to disagree: a comparison may go the other way once, by chance."""

MOST_WORK = 1 << 34
"""Bytes, or of a loop what counts as such, above which a kernel is not run: it would take many seconds."""

_SHRINK, _LEAST = 1 / 16, 1 / 4096
"""A loop's arguments become smaller by the first, and to the second at most: one that multiplies by a matrix of large
numbers in each step soon has nothing but infinities, or what roundings made, of which little can be said."""

_SEEDS, _STEPS = 8, 10_000
"""Arguments of a kind that are tried until the loops of unknown length among the operations end, and the steps within
which they must: a kernel's own loops have no bound."""

_ROUNDS, _SMALL = {Kind.USUAL: 2, Kind.SPECIAL: 16, Kind.EQUAL: 4}, 1 << 12
"""Arguments of each kind for kernels that have fewer elements of them: of few, special ones are seldom where it counts.
Larger kernels have one."""

Run = Callable[[Sequence[Array]], list[Array]]
Bounded = Callable[[Sequence[Array]], list[Array] | None]


class _NeverEnds(Exception):
    """No arguments were found on which the loops end."""


def verified(stitched: Stitched, device: Device, choice: Verify) -> Stitched:
    """Return ``stitched`` without the kernels that compute something else than XLA on ``device``, which runs them.

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
    slow: list[str] = field(default_factory=list)
    """Kernels that no compiler was done with in its time."""

    def judge(self, plan: FusionPlan, kernels: Mapping[int, Sequence[StitchedKernel]]) -> None:
        """Run the kernels of a plan, and of the loops and branches in it; ``kernels`` are by graph."""
        for unit in units_of(plan.graph, kernels.get(id(plan.graph), ())):
            names = ", ".join(k.source.name for k in unit.kernels)
            unseen = _unseen(unit)
            if unseen:
                self.notes.append(f"verify: {names} was not run: {unseen}")
            elif (told := self._told_in_time(unit, names)) is None:
                self.notes.append(
                    f"verify: {names} was not run: a loop in it took {_STEPS:,} steps on all arguments that were tried"
                )
            elif told:
                why = f"verify: a kernel of it computed something else: {told}"
                self.reasons.update((k.number, why) for k in unit.kernels)
        for child in plan.children.values():
            self.judge(child, kernels)

    def _told_in_time(self, unit: Unit, names: str) -> str | None:
        """Return the same as ``_told``. Kernels that keep the compiler for too long are left to XLA, as without
        verification, and nothing is said of what they compute."""
        try:
            return self._told(unit, names)
        except CompilerTimeout as slow:
            self.slow.append(names)
            if slow.kernel is None or len(self.slow) > MOST_SLOW:  # It is the compiler that hangs.
                raise
            self.notes.append(f"{names} is left to XLA: {slow}")
            self.reasons.update((k.number, "a kernel of it took the compiler too long") for k in unit.kernels)
            return ""

    def _told(self, unit: Unit, names: str) -> str | None:
        """Return what is wrong with a unit, or nothing; None if that could not be seen."""
        key = self._key(unit)
        if key not in self.known:
            kept = store.read(_KIND, key)
            if kept is None:
                progress.tell(f"{self.stitched.capture.name}: verifying {names}")
                try:
                    told = self._judged(unit)
                except _NeverEnds:
                    return None
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
        ours, xla = _run(replay(StitchedGraph(unit.own_graph, segments))), _bounded(replay(StitchedGraph(unit.by_xla)))
        others = _Others(_rounded_otherwise(unit.by_xla, 2 * _coarsest(unit)), _without_rounding(unit.by_xla))
        scale = _scale(unit, xla)
        is_small = sum(prod(a.shape) for a in unit.arguments) < _SMALL
        tries = (
            (kind, first)
            for kind, rounds in _ROUNDS.items()
            for first in range(0, (rounds if is_small else 1) * _SEEDS, _SEEDS)
        )
        return next(
            (told for kind, first in tries if (told := _compared(unit, ours, xla, others, scale, kind, first))), ""
        )


@dataclass(frozen=True, slots=True)
class _Others:
    """What else a kernel that disagrees with XLA's program is compared with."""

    rounded: Callable[[Sequence[Array], int], list[Array] | None]
    """The same program, whose operations round otherwise each time."""
    exact: Bounded | None
    """The same in float64; None where there is no such program."""


def _scale(unit: Unit, xla: Bounded) -> float:
    """Return how large a loop's arguments are best: as large as possible without results that overflow, or of which
    roundings decide more than the fourth digit.
    """
    if not any(n.op == "while" for n in needed(unit.by_xla)):
        return 1.0
    scale = 1.0
    while scale > _LEAST:
        given = arguments(unit.arguments, 0, Kind.USUAL, scale)
        wanted = xla(given)
        if wanted is None:
            return 1.0
        if not any(map(overflows, wanted)):
            step = 2 * _coarsest(unit)
            other = xla(moved(given, step, 0))
            if other is None or not any(wanders(w, o, step) for w, o in zip(wanted, other, strict=True)):
                return scale
        scale *= _SHRINK
    return 1.0


def _compared(unit: Unit, ours: Run, xla: Bounded, others: _Others, scale: float, kind: Kind, first: int) -> str:
    """Return what is wrong on some arguments of one kind, and on others too: the next, or of many equal ones, of which
    few are where it counts, any. ``first`` is the first of their seeds. Raise ``_NeverEnds`` if a loop of XLA's program
    has no end on any of them.
    """
    found, tried = list[str](), 0
    for seed in range(first, first + _SEEDS):
        given = arguments(unit.arguments, seed, kind, scale)
        wanted = xla(given)
        if wanted is None:  # Nor would the kernel's loop end.
            continue
        tried += 1
        if told := _told_of(unit, given, wanted, ours(given), xla, others, kind):
            found.append(told)
        elif not found or kind is not Kind.EQUAL:
            return ""
        if len(found) == _TRIES:
            return told
    if not tried and kind is Kind.USUAL and not first:
        raise _NeverEnds
    return found[0] if found and len(found) == tried else ""


def _told_of(
    unit: Unit,
    given: Sequence[Array],
    wanted: Sequence[Array],
    got: Sequence[Array],
    xla: Bounded,
    others: _Others,
    kind: Kind,
) -> str:
    """Return what is wrong with the results on these arguments."""
    if all(_same_bits(g, w) for g, w in zip(got, wanted, strict=True)):
        return ""
    unit_of_rounding = _coarsest(unit)

    def judged(references: Sequence[list[Array] | None], exact: Sequence[Array | None]) -> str:
        there = [r for r in references if r is not None] or [list(wanted)]
        each = (
            disagreement(g, w, ms, unit_of_rounding, special=kind is Kind.SPECIAL, exact=e)
            for (g, w, *ms), e in zip(zip(got, wanted, *there, strict=True), exact, strict=True)
        )
        return next((t for t in each if t), "")

    unknown = [None] * len(wanted)
    if not judged([list(wanted)], unknown):  # As near as rounding once may be, however well the operations behave.
        return ""
    references = [xla(moved(given, 2 * unit_of_rounding, n)) for n in range(_MOVES)]
    if not judged(references, unknown):
        return ""
    references += [others.rounded(given, n) for n in range(_MOVES)]
    told = judged(references, unknown)
    for first in range(_MOVES, _CONFIRMING, _AT_ONCE) if told else ():
        references += [others.rounded(given, n) for n in range(first, first + _AT_ONCE)]
        told = judged(references, unknown)
        if not told:
            return ""
    exact = others.exact(given) if told and others.exact is not None else None
    return told if exact is None else judged(references, exact)


def _run(program: Callable[[Sequence[Any]], list[Any]]) -> Run:
    run = jax.jit(lambda *arrays: program(arrays))
    return lambda arrays: [np.asarray(r) for r in run(*(jnp.asarray(a) for a in arrays))]


def _bounded(program: Callable[[Sequence[Any]], list[Any]]) -> Bounded:
    """Return the same; None where a loop of unknown length took too many steps."""
    run, counts = _run(program), list[int]()

    def bounded(arrays: Sequence[Array]) -> list[Array] | None:
        counts.clear()
        with loops_bounded(_STEPS, counts.append):
            results = run(arrays)
        jax.effects_barrier()
        return results if max(counts, default=0) < _STEPS else None

    return bounded


def _rounded_otherwise(graph: Graph, step: float) -> Callable[[Sequence[Array], int], list[Array] | None]:
    """Return the same, whose operations round otherwise: by up to ``step``, in another way for each number given; and
    take elements in another order where any will do."""
    program = replay(StitchedGraph(graph))

    def traced(arrays: Sequence[Any]) -> list[Any]:
        with rounded_otherwise(step, arrays[0]):
            return program(arrays[1:])

    bounded = _bounded(traced)
    return lambda arrays, number: bounded([np.asarray(number, np.uint32), *arrays])


def _without_rounding(graph: Graph) -> Bounded | None:
    """Return the same in float64; None where there is no such program."""
    wide = widened(graph)
    if wide is None:
        return None
    bounded = _bounded(replay(StitchedGraph(wide)))

    def run(arrays: Sequence[Array]) -> list[Array] | None:
        with jax.enable_x64(True):
            return bounded([_in_64_bits(a) for a in arrays])

    return run


def _in_64_bits(array: Array) -> Array:
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _same_bits(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _coarsest(unit: Unit) -> float:
    """Return the unit in the last place of the coarsest floating type among a unit's values."""
    types = [unit.own_graph[i].type for k in unit.kernels for p in k.scheduled.parts for i in p.pattern.inside]
    types += [unit.own_graph[i].type for i in (*unit.own_graph.parameters, *unit.own_graph.results)]
    dtypes = {numpy_dtype(t) for t in types if isinstance(t, TensorType)}
    floats = [d for d in dtypes if jnp.issubdtype(d, jnp.inexact)]
    return max((float(jnp.finfo(d).eps) for d in floats), default=0.0)


def _operations(unit: Unit) -> list[str]:
    """Return the names of what a unit's kernels compute."""
    graph = unit.own_graph
    nodes = [graph[i] for k in unit.kernels for p in k.scheduled.parts for i in sorted(p.pattern.nodes)]
    return [n.op for n in nodes if n.op not in ("parameter", "constant", "get-tuple-element")]


def _unseen(unit: Unit) -> str:
    """Return why a unit is not run, if it is not."""
    moved_bytes = sum(k.scheduled.bytes_read + k.scheduled.bytes_written for k in unit.kernels)
    if moved_bytes + sum(work_of(k.scheduled) or 0 for k in unit.kernels) > MOST_WORK:
        return "it would take seconds"
    return ""
