"""Is it worth the time to stitch a program, or to compile one of its kernels? Asked where nobody has asked for it.

Before anything is planned: the most that stitching could save, by the bytes and launches of XLA's own kernels against
the least that there can be. Once it is planned: the kernels by what they are predicted to save, less the smallest.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from msgspec import Struct

import hlo_parser
from hlo_parser import Instruction, Module
from jax_stitch.analysis.new_pages import saved_on_new_pages, saved_on_results
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.captured import Captured
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic, traffic_of
from jax_stitch.fusion.launches.shared_calls import calls_of
from jax_stitch.graph.flattening import is_one_kernel
from jax_stitch.jit.programs.record import NotWorthStitching
from jax_stitch.jit.tune.units import by_graph
from jax_stitch.jit.tune.without import without
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.util.collecting import seldom
from jax_stitch.util.formatting import format_seconds

LEAST = 0.03
"""The part of a call's time that stitching has to be able to save."""

_DROPPED = 0.02
"""The part of a call's time that kernels which are not made may have saved together."""
_COMPILE_SECONDS, _CALLS = 0.7, 100_000
"""What a kernel costs to compile, and the calls after which it has to have saved as much, or it may be dropped."""

_NONE: Mapping[int, int] = MappingProxyType({})

_UNBOUNDED = frozenset(
    ("while", "sort", "scatter", "reduce-window", "select-and-scatter", "custom-call", "fft", "cholesky")
    + ("triangular-solve", "rng-bit-generator", "map", "topk", "scan")
)
"""Operations that XLA's own kernels may take far longer for than their bytes need."""

_PRODUCTS = frozenset(("dot", "convolution"))
"""Operations that kernels of a CPU may compute in place of XLA's library, which takes longer than their bytes need."""

_LIBRARIES = ("__ynn", "__onednn")
"""How the kinds of fusions begin that a library of the CPU does: it takes longer than their bytes need. YNN's softmax
takes twice as long as one kernel of ours."""


class Bound(Struct, frozen=True):
    """Seconds of a call: by XLA's kernels, as far as bytes and launches go, and the most of it that could be saved."""

    seconds: float
    saved: float

    @property
    def part(self) -> float:
        """Return the most that could be saved, of the whole."""
        return self.saved / self.seconds if self.seconds else 0.0


@seldom()
def check_worth(captured: Captured, device: Device) -> None:
    """Raise ``NotWorthStitching`` where nothing, or next to nothing, could be saved."""
    if captured.callbacks or captured.effects:  # What Python takes nobody knows.
        return
    limit = bound(captured.text, device, captured.homes)
    if limit is not None and limit.part < LEAST:
        most = f"{limit.part:.1%} of a call ({format_seconds(limit.saved)})"
        raise NotWorthStitching(f"nothing worth stitching: at most {most} could be saved")


def bound(text: str, device: Device, homes: Mapping[int, int] = _NONE) -> Bound | None:
    """Return the bound of a program by its optimized HLO; None where bytes and launches do not bound its time.
    ``homes`` as in ``Captured``.
    """
    module, traffic = _read(text)
    own = [kernel for kernel in traffic.kernels if not kernel.library]
    opcodes = {i.opcode for c in module.computations for i in c.instructions}
    if device.target.runs_sweeps_in_turn and not _PRODUCTS.isdisjoint(opcodes):
        return None
    if traffic.unknown_trips or not _unbounded(module).isdisjoint(kernel.name for kernel in own):
        return None
    launch, bandwidth = device.target.launch_seconds, device.memory_bandwidth
    xla, library = (sum(_seconds(k, device) for k in kernels) for kernels in (own, set(traffic.kernels) - set(own)))
    entry = module.entry
    least = sum(hlo_bytes(p.shape) for p in entry.parameters) + hlo_bytes(entry.root.shape)
    moved_by_library = sum(kernel.bytes for kernel in traffic.kernels if kernel.library)
    best = (launch + max(0, least - moved_by_library) / bandwidth) if own else 0.0
    root = entry.root.shape
    results = root.elements if isinstance(root, hlo_parser.TupleShape) else (root,)
    new = (hlo_bytes(shape) for k, shape in enumerate(results) if k not in homes.values())
    pages = sum(saved_on_new_pages(size, device) for size in new) if own else 0.0
    return Bound(xla + library + pages, max(0.0, xla - best) + pages)


def worthwhile(stitched: Stitched) -> Stitched:
    """Return ``stitched`` less the kernels that are predicted to save least, and not what compiling them costs.

    Raises ``NotWorthStitching`` where none is left, or none was planned.
    """
    if not stitched.kernels:
        raise NotWorthStitching("nothing worth stitching: no kernel is predicted to be faster than XLA's")
    _, traffic = _read(stitched.capture.text)
    by_name = {kernel.name: kernel for kernel in traffic.kernels}
    total = sum(_seconds(kernel, stitched.device) for kernel in traffic.kernels)
    saved: dict[int, float] = defaultdict(float)
    numbers: dict[int, list[int]] = defaultdict(list)
    launches = _launch_seconds(stitched)
    for kernel in stitched.kernels:  # Those that are alike are compiled once.
        saved[id(kernel.source)] += _saved(kernel, launches[kernel.number], by_name, stitched.device)
        numbers[id(kernel.source)].append(kernel.number)
    dropped: dict[int, str] = {}
    left = _DROPPED * total
    for source in sorted(saved, key=lambda source: saved[source]):
        left -= max(0.0, saved[source])
        if left < 0 or saved[source] * _CALLS > _COMPILE_SECONDS:
            break
        reason = f"a kernel would save {format_seconds(max(0.0, saved[source]))} of a call, less than it costs to make"
        dropped |= dict.fromkeys(numbers[source], reason)
    if len(dropped) == len(stitched.kernels):
        raise NotWorthStitching("nothing worth stitching: its kernels would save less than it costs to compile them")
    rest = without(stitched, dropped)
    if not dropped:
        return rest
    note = f"{len(dropped)} kernels that would save next to nothing are left to XLA"
    return replace(rest, plan=replace(rest.plan, notes=(*rest.plan.notes, note)))


def replaced_launches(stitched: Stitched) -> int:
    """Return launches in a call of XLA's kernels of which stitched kernels have a part."""
    _, traffic = _read(stitched.capture.text)
    taken = {name for kernel in stitched.kernels for name in _taken(kernel)}
    return sum(kernel.launches for kernel in traffic.kernels if kernel.name in taken and not kernel.library)


def hlo_bytes(shape: hlo_parser.Shape) -> int:
    """Return bytes of a value."""
    if isinstance(shape, hlo_parser.TupleShape):
        return sum(hlo_bytes(element) for element in shape.elements)
    return shape.bytes if isinstance(shape, hlo_parser.ArrayShape) else 0


def _launch_seconds(stitched: Stitched) -> dict[int, float]:
    """Return the seconds that a launch of each kernel takes, by number: of those that share a call, a share."""
    target = stitched.device.target
    seconds: dict[int, float] = {}
    for kernels in by_graph(stitched.kernels).values():
        patterns = [tuple(part.pattern for part in kernel.scheduled.parts) for kernel in kernels]
        for call in calls_of(kernels[0].scheduled.graph, patterns, stitched.device):
            whole = target.launch_seconds + (len(call) - 1) * target.kernel_seconds
            seconds |= {kernels[k].number: whole / len(call) for k in call}
    return seconds


def _saved(kernel: StitchedKernel, launch: float, by_name: Mapping[str, KernelTraffic], device: Device) -> float:
    """Return the seconds of a call that a kernel is predicted to save, whose launches take so many each; infinity for
    what bytes do not bound."""
    graph = kernel.scheduled.graph
    nodes = [graph[i] for part in kernel.scheduled.parts for i in part.pattern.nodes]
    if any((node.graphs and node.op != "reduce") or node.op in _UNBOUNDED | _PRODUCTS for node in nodes):
        return float("inf")
    before = sum(_seconds(by_name[name], device) for name in {n.xla_kernel for n in nodes} if name in by_name)
    moved = kernel.scheduled.bytes_read + kernel.scheduled.bytes_written
    pages = sum(saved_on_results(graph, part.pattern.nodes, device) for part in kernel.scheduled.parts)
    return before + pages - kernel.launches * (launch + moved / device.memory_bandwidth)


def _taken(kernel: StitchedKernel) -> set[str]:
    """Return the names of XLA's kernels that a kernel has operations of, also of the loops in it."""
    graph = kernel.scheduled.graph
    names: set[str] = set()
    open_nodes = [graph[i] for part in kernel.scheduled.parts for i in part.pattern.nodes]
    while open_nodes:
        node = open_nodes.pop()
        names.add(node.xla_kernel)
        open_nodes += [inner for called in node.graphs.values() for inner in called.nodes]
    return names


def _seconds(kernel: KernelTraffic, device: Device) -> float:
    return kernel.launches * device.target.launch_seconds + kernel.bytes / device.memory_bandwidth


def _unbounded(module: Module) -> set[str]:
    """Return the names of the instructions whose kernels may take far longer than their bytes need: also of calls that
    XLA:CPU compiles as one kernel with the loops in them.
    """
    fused = {c.name for c in module.computations if any(i.opcode in _UNBOUNDED for i in c.instructions)}
    every = [i for c in module.computations for i in c.instructions]
    inside = {i.name for i in every if i.opcode in ("fusion", "fusion-start") and i.attributes["calls"] in fused}
    inside |= {i.name for i in every if is_one_kernel(i) and i.attributes["to_apply"] in fused}
    return inside | {i.name for i in every if i.opcode in _UNBOUNDED}


def _passes(module: Module, fusion: Instruction) -> int:
    """Return how often a fusion goes over what it moves: one that a library of the CPU does, once up to each reduction
    that others wait for; one that XLA generates, once."""
    config = fusion.attributes.get("backend_config")
    kind = config.get("fusion_config", {}).get("kind", "") if isinstance(config, Mapping) else ""
    if not str(kind).startswith(_LIBRARIES):
        return 1
    computation = module.computation(fusion.attributes["calls"])
    before: dict[str, int] = {}
    for i in computation:
        read = (before[o] + (computation[o].opcode == "reduce") for o in i.operands)
        before[i.name] = max(read, default=0)
    return 1 + max(before.values())


@functools.lru_cache(maxsize=1)
def _read(text: str) -> tuple[Module, Traffic]:
    """Return the module and traffic of the program at hand: read once for all that is asked of it."""
    module = module_of(text)
    traffic = traffic_of(module)
    fusions = (i for c in module.computations for i in c.instructions if i.opcode in ("fusion", "fusion-start"))
    passes = {i.name: _passes(module, i) for i in fusions}
    kernels = tuple(replace(k, bytes=k.bytes * passes.get(k.name, 1)) for k in traffic.kernels)
    return module, replace(traffic, kernels=kernels)
