"""The ways in which a program is run: as the user's default, with all that can be stitched, for a GPU, and checked."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

import jax
import numpy as np

from jax_stitch import UnstitchableError, devices, pipeline, stitch, stitch_jit
from jax_stitch.backend.compile import host
from jax_stitch.checking import check_function
from jax_stitch.devices import Device
from jax_stitch.emit import KernelRefused
from jax_stitch.jit import lowering
from jax_stitch.jit.programs import fallback
from jax_stitch.jit.rebuilt import find
from jax_stitch.schedule.model import InnerReducePass, LoopPass, ScheduledKernel, SortPass
from tests.fusion import forced
from tests.fuzz import probes
from tests.fuzz.judge import arrays

FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)

WEIGHTS = {"default": 12, "forced": 24, "verified": 8, "h200": 7, "h200-forced": 24, "raw": 18, "checked": 7}
"""How often a program is run each way. ``raw`` is the HLO as JAX writes it, for any of ``DEVICES``; ``verified`` is
``forced`` with a second opinion on each kernel, which fails where it refuses one."""

SMALL = {"multiprocessors": 2, "shared_per_block": 2048, "shared_per_block_optin": 16384}
DEVICES: dict[str, tuple[str, dict[str, int]]] = {
    "cpu": ("cpu", {}),
    "one core": ("cpu", {"multiprocessors": 1}),
    "h200": ("h200", {}),
    "small": ("h200", SMALL),
    "middle": ("h200", {"multiprocessors": 8}),
}
"""What kernels are laid out for: a device, and what is different about it."""


def device_of(name: str) -> Device:
    """One of ``DEVICES``. Asking for the CPU makes JAX look for devices: not to be done before a process is forked."""
    base, changes = DEVICES[name]
    return forced.device(base, **changes)


@dataclass
class Seen:
    """What was stitched, and what was not and why."""

    opcodes: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)


class Refused(Exception):
    """Our own check refuses a kernel of ours. Users are told in a note, and XLA has the work: it would not show."""


class NotLowered(Exception):
    """JAX itself does not lower a function that it has run."""


class Checked(Exception):
    """The checking mode found something."""


@dataclass(frozen=True)
class Way:
    """One way to run, with what chance decides about it."""

    name: str
    seed: int

    @property
    def device(self) -> str:
        return Random(self.seed).choice(list(DEVICES)[2:] if self.name == "checked" else list(DEVICES))

    @property
    def donates(self) -> bool:
        return self.name in ("default", "forced") and self.seed % 5 == 0

    def run(self, fun: Callable[..., Any], args: Sequence[Any]) -> list[np.ndarray]:
        """The results of ``fun``, stitched this way."""
        given = [jax.device_put(np.array(a)) for a in args]  # Nothing is compiled for it.
        donated = tuple(range(len(args))) if self.donates else ()
        match self.name:
            case "default":
                return arrays(stitch_jit(fun, donate_argnums=donated)(*given))
            case "forced":
                with forced.everything_pays(self.seed):
                    return arrays(stitch_jit(fun, donate_argnums=donated)(*given))
            case "verified":
                with forced.everything_pays(self.seed):
                    try:
                        return arrays(stitch_jit(fun, verify=True, strict=True)(*given))
                    except UnstitchableError:
                        return arrays(jax.jit(fun)(*given))
            case "h200":
                return arrays(jax.jit(stitch(fun, schedule_device="h200"))(*given))
            case "h200-forced":
                with forced.everything_pays(self.seed), small_h200(self.seed):
                    return arrays(jax.jit(stitch(fun, schedule_device="h200"))(*given))
        try:
            text = forced.hlo_of(fun, *args)
        except Exception as failure:
            raise NotLowered(str(failure)) from failure
        kernels = forced.stitched(text, device_of(self.device), self.seed)
        if self.name == "raw":
            return [np.asarray(r) for r in jax.jit(kernels.compile("host"))(given)]
        found = check_function(kernels, args)
        if found.errors:
            error = found.errors[0]
            raise Checked(f"{error.kind.name}: {error}")
        return list(found.results)

    def script(self) -> list[str]:
        """The end of a script that runs ``f`` on ``args`` this way."""
        plain = 'print("plain", jax.jit(f)(*args))'
        head = ["from tests.fusion import forced", "from jax_stitch import stitch, stitch_jit"]
        donation = ", donate_argnums=tuple(range(len(args)))" if self.donates else ""
        call = f"stitch_jit(f, mode='now'{donation})(*map(jnp.array, args))"
        match self.name:
            case "default":
                return ["from jax_stitch import stitch_jit", plain, f'print("stitched", {call})']
            case "forced":
                return [*head, plain, f"with forced.everything_pays({self.seed}):", f'    print("stitched", {call})']
            case "verified":
                call = "stitch_jit(f, verify=True, strict=True)(*map(jnp.array, args))"
                return [*head, plain, f"with forced.everything_pays({self.seed}):", f'    print("stitched", {call})']
            case "h200":
                return [head[1], plain, 'print("stitched", jax.jit(stitch(f, schedule_device="h200"))(*args))']
            case "h200-forced":
                return [
                    *head,
                    "from tests.fuzz.ways import small_h200",
                    plain,
                    f"with forced.everything_pays({self.seed}), small_h200({self.seed}):",
                    '    print("stitched", jax.jit(stitch(f, schedule_device="h200"))(*args))',
                ]
        made = f"kernels = forced.stitched(forced.hlo_of(f, *args), device_of({self.device!r}), {self.seed})"
        head = [head[0], "from tests.fuzz.ways import device_of", plain, made]
        if self.name == "raw":
            return [*head, 'print("stitched", jax.jit(kernels.compile("host"))([jnp.array(a) for a in args]))']
        return [
            head[0],
            "from jax_stitch.checking import check_function",
            *head[1:],
            "print(check_function(kernels, args))",
        ]


def draw(rng: Random, allowed: Sequence[str] = ()) -> Way:
    """A way, by weight."""
    names = list(allowed or WEIGHTS)
    name = rng.choices(names, [WEIGHTS[n] for n in names])[0]
    return Way(name, rng.randrange(1000))


@contextmanager
def small_h200(seed: int) -> Iterator[None]:
    """At times, the H200 is one so small that blocks take several turns."""
    small = device_of(("h200", "small", "middle")[seed % 3])
    usual = devices.get

    def get(name: str | None) -> Device:
        return small if name == "h200" else usual(name)

    with mock.patch.object(devices, "get", get):
        yield


def reason_of(failure: Exception, origin: Any) -> str:
    """Why a function runs unstitched; what is an internal error is raised."""
    if fallback.is_internal(failure):
        raise failure
    return fallback.reason_of(failure, origin)


@contextmanager
def watched(seen: Seen, *, optimised: bool = True) -> Iterator[None]:
    """Kernels are compiled as users have them or quickly, plans never come from disk, failures of JAX Stitch are
    raised, and all is noted."""
    usual = pipeline.emit

    def emit(kernel: ScheduledKernel) -> Any:
        note(kernel, seen)
        try:
            source = usual(kernel)
        except KernelRefused as refusal:
            raise Refused(str(refusal)) from refusal
        probes.reach_text(source.code)
        return source

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(lowering, "reason_of", reason_of))
        flags = host.FLAGS if optimised else FLAGS
        stack.enter_context(mock.patch.object(host, "FLAGS", flags))
        stack.enter_context(mock.patch.object(forced, "LIGHT_FLAGS", flags))
        stack.enter_context(mock.patch.object(find, "load", lambda name: None))
        stack.enter_context(mock.patch.object(find, "keep", lambda name, program: None))
        stack.enter_context(mock.patch.object(pipeline, "emit", emit))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", fallback.StitchWarning)
        try:
            yield
        finally:
            for warning in caught:
                if issubclass(warning.category, fallback.StitchWarning):
                    seen.fallbacks[str(warning.message).split("jax.jit: ")[-1][:100]] += 1


def note(kernel: ScheduledKernel, seen: Seen) -> None:
    """Counts what a kernel is made of."""
    for part in kernel.parts:
        seen.opcodes.update(part_op for part_op in (kernel.graph[i].op for i in part.pattern.nodes))
        seen.parts.update(part.composition)
        seen.parts.update(_kinds(part))
    if len(kernel.phases) > 1:
        seen.parts["phases of a grid"] += 1
    if any(len(phase) > 1 for phase in kernel.phases):
        seen.parts["packing"] += 1


def _kinds(part: Any) -> Iterator[str]:
    if part.team is not None:
        yield "loop over the grid" if part.spread else "loop in blocks"
    elif part.pattern.loop is not None:
        yield "loop in threads"
    if part.split.cluster > 1:
        yield "cluster of blocks"
    if part.pattern.blocks is not None:
        yield "partial reduction"
    if part.split.sequence > 1:
        yield "rows in turn"
    for row_pass in part.passes:
        if isinstance(row_pass, SortPass):
            yield "sort"
        elif isinstance(row_pass, InnerReducePass):
            yield "reduction that keeps places"
        elif isinstance(row_pass, LoopPass):
            if row_pass.reduces:
                yield "reduction"
            if row_pass.scans:
                yield "scan"
            if not row_pass.reduces and not row_pass.scans:
                yield "pass"
        else:
            yield "row"
