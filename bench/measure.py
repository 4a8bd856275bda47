"""One workload measured: compiled, counted, compared and timed."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_parser
from bench.alone import alone, beside
from bench.gpu.traced import traced
from bench.rows import Launched, Row, Side, Status, Time
from bench.worker import Tell
from bench.workloads import ALL
from jax_stitch import devices, graph
from jax_stitch.api import stitch_jit
from jax_stitch.backend.launch import host
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.hlo_text import full_text
from jax_stitch.frontend.capture.traffic import Traffic, traffic
from jax_stitch.fusion.launch_bound import least_launches
from jax_stitch.inspect.report.accuracy import LeafAgreement, NoReference, agreement, reference
from jax_stitch.inspect.report.plan import Plan
from jax_stitch.jit.programs.fallback import StitchWarning
from jax_stitch.util.timing import Timing, time_programs


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure."""

    workload: str
    size: tuple[int, ...]
    checked: tuple[int, ...]
    dtype: str
    device: str
    """"cpu", "cuda", or a described device: then launches and bytes are planned, and nothing runs."""
    what: str
    """"compile" (no more than that), "all", or "times" alone."""
    seconds: float
    """For timing."""


def answer(values: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The row, as plain values, that a request asks for."""
    request = Request(**{**values, "size": tuple(values["size"]), "checked": tuple(values["checked"])})
    with warnings.catch_warnings(record=True) as caught, beside():
        warnings.simplefilter("always")
        row = measure(request, tell) if request.device in ("cpu", "cuda") else planned(request, tell)
    jax.clear_caches()
    gc.collect()
    told = tuple(dict.fromkeys(str(w.message).splitlines()[0] for w in caught if isinstance(w.message, StitchWarning)))
    status = "plain" if told and row.status == "ok" else row.status
    return replace(row, status=status, notes=row.notes + told).to_dict()


def measure(request: Request, tell: Tell) -> Row:
    """Compiles, counts, compares and times a workload under ``jax.jit`` and ``stitch_jit``."""
    workload = ALL[request.workload]
    tell("making its arguments")
    function, args = jax.block_until_ready(workload.make(request.size, jnp.dtype(request.dtype)))
    functions: dict[str, Any] = {"jit": jax.jit(function), "stitched": stitch_jit(function)}
    first_use()

    programs, seconds = _compiled(functions, args, tell)
    if request.what == "compile":
        sides = {name: Side(cold=seconds[name]) for name in functions}
        return _row(request, "ok", **sides)

    times: dict[str, Timing] = {}
    if request.what == "times":
        tell("timing")
        times = time_programs(functions, args, rounds=25, seconds=request.seconds, alone=alone)
        return _row(request, "ok", **{name: Side(time=_time(times[name])) for name in functions})

    results = {}
    for name, program in programs.items():
        tell(f"running the program of {name}")
        results[name] = jax.block_until_ready(program(*args))
    tell("comparing results")
    bound = _size((args, results["jit"]))
    difference, (leaves, notes) = _compared(request, function, args, results)
    del results
    tell("timing")
    times = time_programs(functions, args, rounds=25, seconds=request.seconds, alone=alone)
    with alone():
        watched = {name: _watched(program, args, times[name].median) for name, program in programs.items()}
    tell("counting launches and bytes")
    device = devices.get("cpu" if request.device == "cpu" else None)
    errors = {
        "jit": max((leaf.plain.largest for leaf in leaves), default=0.0),
        "stitched": max((leaf.stitched.largest for leaf in leaves), default=0.0),
    }
    sides = {
        name: Side(
            time=_time(times[name]),
            device=sum(k.seconds for k in watched[name]) or None,
            kernels=watched[name],
            warm=seconds[name],
            peak_bytes=_peak(program),
            error=errors[name],
            **counts(traffic(full_text(program.runtime_executable()), host.unread), device),
        )
        for name, program in programs.items()
    }
    wrong = [str(leaf) for leaf in leaves if not leaf.agrees]
    return _row(
        request,
        "wrong" if wrong else "ok",
        reason="; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
        notes=notes,
        bound_bytes=bound,
        checked_size=None if request.checked == request.size else request.checked,
        difference=difference,
        **sides,
    )


def _compiled(functions: Mapping[str, Any], args: Sequence[Any], tell: Tell) -> tuple[dict[str, Any], dict[str, float]]:
    """The programs of both, and the seconds that each took."""
    seconds, programs = dict[str, float](), dict[str, Any]()
    for name, compiler in zip(functions, ("jax.jit", "stitch_jit"), strict=True):
        tell(f"compiling with {compiler}")
        start = time.perf_counter()
        programs[name] = functions[name].lower(*args).compile()
        seconds[name] = time.perf_counter() - start
    return programs, seconds


def _watched(program: Callable[..., Any], args: Sequence[Any], seconds: float) -> tuple[Launched, ...]:
    """The kernels of some calls, as a GPU saw them; none on a CPU."""
    if jax.default_backend() == "cpu":
        return ()
    return tuple(traced(lambda: program(*args), min(20, max(2, round(0.05 / seconds)))))


def _compared(
    request: Request, function: Callable[..., Any], args: Sequence[Any], results: Mapping[str, Any]
) -> tuple[Any, tuple[Any, Any]]:
    """How far results are apart where the size is too large to be judged, and the verdict on what was checked."""
    if request.checked == request.size:
        return None, judged(function, args, results["jit"], results["stitched"])
    return _difference(results["stitched"], results["jit"]), checked(request)


def planned(request: Request, tell: Tell) -> Row:
    """Launches and bytes on a device that is only described."""
    tell(f"planning for {request.device}")
    function, shapes = ALL[request.workload].abstract(request.size, jnp.dtype(request.dtype))
    plan: Plan = stitch_jit(function).plan(*shapes, device=request.device)
    tell("compiling XLA's own program")
    xla = plan.xla_traffic
    tell("compiling the stitched program")
    stitched = plan.stitched_traffic
    stops = tuple((len(found), op, reason) for (op, reason), found in plan.stops())
    sides = {"jit": Side(**counts(xla, plan.device)), "stitched": Side(**counts(stitched, plan.device))}
    return _row(
        request,
        "ok",
        bound_bytes=plan.bound_bytes,
        notes=plan.all_notes(),
        floor=least_launches(graph.build(hlo_parser.parse(plan.hlo))) if plan.hlo else None,
        stops=stops,
        **sides,
    )


def judged(function: Any, args: Any, plain: Any, stitched: Any) -> tuple[tuple[LeafAgreement, ...], tuple[str, ...]]:
    """The verdict on every output leaf; against ``jax.jit``'s own result, with a note, where there is no float64."""
    try:
        exact, notes = reference(function, args), tuple[str, ...]()
    except NoReference as reason:
        exact, notes = plain, (f"errors are against jax.jit: {reason}",)
    return agreement(stitched, plain, exact), notes


def checked(request: Request) -> tuple[tuple[LeafAgreement, ...], tuple[str, ...]]:
    """The verdict at the size at which results are compared."""
    function, args = ALL[request.workload].make(request.checked, jnp.dtype(request.dtype))
    return judged(function, args, jax.jit(function)(*args), stitch_jit(function)(*args))


def counts(found: Traffic, device: Device) -> dict[str, Any]:
    """The figures of ``Side`` that come of a program's traffic."""
    launch, bandwidth = device.target.launch_seconds, device.memory_bandwidth
    return {
        "launches": found.launches,
        "library_launches": found.library_launches,
        "bytes": found.bytes,
        "predicted": sum(max(k.launches * launch, k.bytes / bandwidth) for k in found.kernels if not k.library),
    }


def first_use() -> None:
    """What only the first compiled and the first stitched function of a process pay for."""
    x = jnp.arange(256.0)
    jax.block_until_ready((jax.jit(lambda x: x + 1)(x), stitch_jit(lambda x: x - x.mean())(x)))


def _row(request: Request, status: Status, **found: Any) -> Row:
    family = ALL[request.workload].family
    return Row(request.workload, family, request.size, request.dtype, request.device, status, **found)


def _time(timing: Timing) -> Time:
    return Time(timing.median, timing.spread, timing.samples, timing.in_program)


def _peak(program: Any) -> int | None:
    found = program.memory_analysis()
    if found is None:
        return None
    used = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return int(used - found.alias_size_in_bytes)


def _size(tree: Any) -> int:
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    return sum(x.size * x.dtype.itemsize for x in arrays)


def _difference(stitched: Any, plain: Any) -> float:
    """The largest difference of any floating-point leaf, relative to its largest magnitude."""
    found = 0.0
    for s, p in zip(jax.tree.leaves(stitched), jax.tree.leaves(plain), strict=True):
        if jnp.issubdtype(p.dtype, jnp.floating):
            a, b = (np.asarray(x).astype(np.float64) for x in (s, p))
            found = max(
                found, float(np.nanmax(np.abs(a - b), initial=0.0)) / (float(np.nanmax(np.abs(b), initial=0.0)) or 1)
            )
    return found
