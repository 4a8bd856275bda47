"""Copies that donated arguments and loops' carries cost: XLA's program, ours as kernels wrote beside their inputs, and
ours as they write over them. For a described H200 and for the CPU, where memory and time are measured too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from rich.console import Console

import hlo_parser
from bench.files import write_json
from bench.tables import markdown
from bench.workloads.base import normal
from bench.workloads.training import training_step
from hlo_parser import Module
from jax_stitch import devices
from jax_stitch.backend.compile import target_of
from jax_stitch.backend.compile.host import stand_in
from jax_stitch.backend.launch import choice, host
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture, capture, lower
from jax_stitch.frontend.capture.traffic import KernelTraffic, traffic_of
from jax_stitch.jit.tune import stitch_and_tune
from jax_stitch.jit.tune.sound import sound
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.util import platform
from jax_stitch.util.formatting import format_bytes, format_seconds
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.timing import Timing, time_programs

WAYS = ("jax.jit", "before", "now")


@dataclass(frozen=True, slots=True)
class Donating:
    """A function, its arguments for a width, and which of them are donated."""

    make: Callable[[int], tuple[Callable[..., Any], tuple[Any, ...]]]
    donated: tuple[int, ...]


def _tensors(width: int, seed: int) -> dict[str, jax.Array]:
    shapes = {"kernel": (width, 4 * width), "bias": (4 * width,), "out": (4 * width, width), "scale": (width,)}
    return {name: normal(seed + k, shape, jnp.float32, 0.1) for k, (name, shape) in enumerate(shapes.items())}


def _optimizer(optimizer: optax.GradientTransformation) -> Donating:
    def make(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        def update(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        params = _tensors(width, 0)
        state = optimizer.update(_tensors(width, 30), optimizer.init(params), params)[1]
        return update, (params, state, _tensors(width, 60))

    return Donating(make, (0, 1))


def _average(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def average(kept: Any, params: Any) -> Any:
        return jax.tree.map(lambda a, p: 0.999 * a + 0.001 * p, kept, params)

    return average, (_tensors(width, 0), _tensors(width, 30))


def _softmax(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda x: jax.nn.softmax(x, -1), (normal(0, (2 * width, 4 * width), jnp.float32),)


def _fori_loop(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Descent with momentum towards a product's fixed point: XLA's product in the body, our kernel behind it."""

    def descend(x: jax.Array, m: jax.Array, w: jax.Array) -> Any:
        def step(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, m = carry
            y = x @ w
            y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
            m = 0.9 * m + (x - jnp.tanh(y))
            return x - 0.1 * m, m

        return lax.fori_loop(0, 20, step, (x, m))

    square = (4 * width, width)
    return descend, (
        normal(0, square, jnp.float32),
        normal(1, square, jnp.float32),
        normal(2, (width,) * 2, jnp.float32),
    )


def _scan(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A recurrent layer whose state is normalised at each step."""

    def run(state: Any, inputs: jax.Array, w: jax.Array) -> Any:
        def step(carry: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            h, c = carry
            y = h @ w + x
            c = 0.9 * c + jax.nn.sigmoid(y) * jnp.tanh(y)
            h = c / (jnp.sqrt((c * c).mean(-1, keepdims=True)) + 1e-3)
            return (h, c), h.mean(-1)

        return lax.scan(step, state, inputs)

    batch = (width, width)
    state = normal(0, batch, jnp.float32), normal(1, batch, jnp.float32)
    return run, (state, normal(2, (20, *batch), jnp.float32), normal(3, batch, jnp.float32, width**-0.5))


def _training(width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        h = jax.nn.gelu(x @ params["kernel"] + params["bias"]) @ params["out"]
        h = (h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 1e-5) * params["scale"]
        return ((h - y) ** 2).mean()

    optimizer, params = optax.adamw(1e-3), _tensors(width, 0)
    state = optimizer.update(_tensors(width, 30), optimizer.init(params), params)[1]
    batch = normal(60, (width, width), jnp.float32), normal(61, (width, width), jnp.float32)
    return training_step(loss, optimizer, "training"), (params, state, *batch)


PROGRAMS = {
    "AdamW, 12 arrays": _optimizer(optax.adamw(1e-3)),
    "momentum": _optimizer(optax.sgd(1e-2, momentum=0.9, nesterov=True)),
    "LAMB": _optimizer(optax.lamb(1e-3)),
    "moving average": Donating(_average, (0,)),
    "softmax in place": Donating(_softmax, (0,)),
    "fori_loop": Donating(_fori_loop, (0, 1)),
    "scan": Donating(_scan, (0,)),
    "training step": Donating(_training, (0, 1)),
}
WIDTH, SMALL = 768, 64


@dataclass(frozen=True, slots=True)
class Counted:
    """What one way to run a program costs on one device."""

    program: str
    device: str
    way: str
    launches: int
    """Of all kernels, those that copy among them."""
    copies: int
    copied_bytes: int
    """Read and written."""
    peak_bytes: int | None = None
    """Arguments, results and what lies between, measured where the program was compiled to run."""
    seconds: float | None = None


def copies(text: str) -> list[KernelTraffic]:
    """The kernels of optimized HLO that copy and do nothing else."""
    module = hlo_parser.parse(text)
    named = {i.name: i for c in module.computations for i in c.instructions}
    return [k for k in traffic_of(module, host.unread).kernels if _copies(module, named[k.name])]


_MOVING = {"parameter", "copy", "bitcast", "reshape", "tuple", "get-tuple-element", "concatenate", "slice"}


def _copies(module: Module, instruction: hlo_parser.Instruction) -> bool:
    if instruction.opcode != "fusion":
        return instruction.opcode in ("copy", "copy-start")
    inside = {i.opcode for i in module.computation(instruction.attributes["calls"]).instructions}
    return "copy" in inside and inside <= _MOVING


def made(captured: Capture, device: Device) -> dict[str, Stitched]:
    """Our programs: as they were before outputs were written over inputs, and as they are."""
    before = fit(sound(stitch_capture(replace(captured, donated=()), device)), target_of(device))
    now = stitch_and_tune(captured, device, device, PlannerName.BEAM, "", Autotune.OFF)
    return {"before": before, "now": now}


def _text(stitched: Stitched, captured: Capture) -> str:
    """A program as XLA compiles it with the donation of the captured one."""
    device = captured.device
    kernels = (
        [stand_in(source.name) for source in stitched.sources]
        if device.target.is_host
        else stitched.compile_kernels(target_of(device))
    )
    run = stitched.function(kernels)
    with choice.compiling_for(device.attached and not device.target.is_host):
        lowered = lower(lambda *arrays: run(arrays), captured.parameters, device, donated=captured.donated)
    return lowered.default_text()


def count(name: str, width: int, device: Device) -> list[Counted]:
    """A program on a device, in all ways."""
    function, args = PROGRAMS[name].make(width)
    captured = _captured(name, function, args, device)
    texts = {"jax.jit": captured.default_text}
    texts |= {way: _text(stitched, captured) for way, stitched in made(captured, device).items()}
    found = []
    for way in WAYS:
        kernels = copies(texts[way])
        launches = traffic_of(hlo_parser.parse(texts[way]), host.unread).launches
        copied = sum(k.launches for k in kernels), sum(k.bytes for k in kernels)
        found.append(Counted(name, device.name, way, launches, *copied))
    return found


def _captured(name: str, function: Any, args: Sequence[Any], device: Device) -> Capture:
    leaves = [len(jax.tree.leaves(arg)) for arg in args]
    given = [k for n in PROGRAMS[name].donated for k in range(sum(leaves[:n]), sum(leaves[: n + 1]))]
    return capture(function, args, device, donated=given)


def measure(name: str, width: int, seconds: float) -> tuple[dict[str, int], dict[str, Timing]]:
    """Peak memory and time of a program on the CPU in use, in all ways, which are timed in turn."""
    function, args = PROGRAMS[name].make(width)
    device = devices.get("cpu")
    captured = _captured(name, function, args, device)
    programs: dict[str, Any] = {"jax.jit": jax.jit(function, donate_argnums=PROGRAMS[name].donated)}
    for way, stitched in made(captured, device).items():
        run = stitched.compile("host")

        def again(*args: Any, run: Any = run) -> Any:
            return captured.unflatten(run(captured.flatten(args)))

        programs[way] = jax.jit(again, donate_argnums=PROGRAMS[name].donated)
    peaks = {way: _peak(program.lower(*args).compile()) for way, program in programs.items()}
    return peaks, time_programs(programs, args, rounds=31, seconds=seconds, donating=True)


def _peak(compiled: Any) -> int:
    memory = compiled.memory_analysis()
    whole = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return int(whole - memory.alias_size_in_bytes)


def table(rows: Sequence[Counted]) -> str:
    """A line for each program and device."""
    by_case: dict[tuple[str, str], dict[str, Counted]] = {}
    for row in rows:
        by_case.setdefault((row.device, row.program), {})[row.way] = row
    found: list[str] = []
    for device in dict.fromkeys(row.device for row in rows):
        cases = {program: ways for (where, program), ways in by_case.items() if where == device}
        timed = any(way.seconds is not None for ways in cases.values() for way in ways.values())
        columns = ["copies", "copied", "launches", *(["peak memory", "time"] if timed else [])]
        header = ["program", *(f"{column}: {way}" for column in columns for way in WAYS)]
        lines = [[program, *_cells(ways, timed)] for program, ways in cases.items()]
        found += [f"{device}:", "", markdown(header, lines), ""]
    return "\n".join(found).rstrip()


def _cells(ways: dict[str, Counted], timed: bool) -> list[str]:
    rows = [ways[way] for way in WAYS]
    cells = [f"{r.copies:,}" for r in rows] + [format_bytes(r.copied_bytes) for r in rows]
    cells += [f"{r.launches:,}" for r in rows]
    if timed:
        cells += [format_bytes(r.peak_bytes or 0) for r in rows]
        cells += [format_seconds(r.seconds) if r.seconds is not None else "-" for r in rows]
    return cells


def holds(rows: Sequence[Counted]) -> bool:
    """Whether ours copies no more than XLA, in number and in bytes, and launches no more kernels than before."""
    found = {(r.program, r.device, r.way): r for r in rows}
    return all(
        (r.copies, r.copied_bytes) <= (xla.copies, xla.copied_bytes)
        and r.copied_bytes <= xla.copied_bytes
        and r.launches <= found[program, device, "before"].launches
        for (program, device, way), r in found.items()
        if way == "now"
        for xla in (found[program, device, "jax.jit"],)
    )


def run(only: Sequence[str], small: bool, seconds: float, json: Path | None, console: Console) -> int:
    """Counts and measures each program and prints the table; the exit status is 1 where ours copies more than XLA."""
    rows: list[Counted] = []
    for name in only or PROGRAMS:
        width = SMALL if small else WIDTH
        rows += count(name, width, devices.get("h200"))
        on_cpu = count(name, width, devices.get("cpu"))
        if seconds > 0:
            peaks, times = measure(name, width, seconds)
            on_cpu = [replace(r, peak_bytes=peaks[r.way], seconds=times[r.way].median) for r in on_cpu]
        rows += on_cpu
        if json is not None:
            write_json(json, {"width": width, "rows": [asdict(row) for row in rows]})
        console.print(f"{name}: counted", highlight=False, markup=False)
    print(table(rows))
    return 0 if holds(rows) else 1


def add(commands: Any) -> None:
    """The command, among those of ``python -m bench``."""
    parser = commands.add_parser("copies", help="copies of donated arguments and of what loops carry")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--small", action="store_true", help="the size of the tests")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="to time each program on the CPU; 0: not (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.set_defaults(command=_command)


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    return run(options.only, options.small, options.seconds, options.json, Console(stderr=True))
