"""The latency-evaluator: the estimated time of a scheduled kernel, from the instructions of its warps, the device's
occupancy, and the bytes it moves (2021 paper, equation 1; 2019 paper, M(V) = V / B(V)).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from msgspec import Struct

from jax_stitch.analysis.patterns.traffic import BYTES_PER_THREAD
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.backend.compile import Occupancy, PtxKernel, occupancy, resident_blocks
from jax_stitch.devices import Device
from jax_stitch.emit import for_target, kernel_of
from jax_stitch.graph.model import Graph
from jax_stitch.kernel.model import Part as KernelPart
from jax_stitch.latency.classes import ACCESSES, Work
from jax_stitch.latency.constants import Constants, constants_of
from jax_stitch.latency.loops import team_work
from jax_stitch.latency.work import Counted, Reads, part_work
from jax_stitch.schedule import ScheduledKernel, registers
from jax_stitch.schedule.model import Part
from jax_stitch.schedule.work import work_of
from jax_stitch.util.formatting import format_bytes, format_seconds
from jax_stitch.util.values import replace


@dataclass(frozen=True, slots=True)
class PhaseLatency:
    """The terms of the estimate for the work between two barriers of all blocks."""

    warps: int
    """N_warp: warps in all; on a CPU blocks, each run by one core."""
    resident: int
    """Warps (on a CPU blocks) that the device runs at a time: its occupancy."""
    instructions: tuple[tuple[str, float], ...]
    """Instructions of one warp (on a CPU one block, in vectors), by class."""
    warp_cycles: float
    """L_warp: cycles of a warp among those resident with it; where parts are packed, the mean of the waves."""
    compute: float
    """Seconds: N_wave x L_warp."""
    bytes: int
    bandwidth: float
    """B(V) at these bytes, limited to what the resident warps can use; bytes per second."""
    memory: float
    """Seconds: V / B(V), or the level-2 cache's time for accesses in pieces where that is longer."""
    seconds: float
    """The longer of ``compute`` and ``memory``, and the part of the other that is not hidden behind it."""
    again: int
    """The bytes, of ``bytes``, that are read from memory again, since the level-2 cache no longer has them."""

    @property
    def waves(self) -> int:
        """Return N_wave: the number of warps that follow each other."""
        return ceil(self.warps / self.resident)


@dataclass(frozen=True, slots=True)
class Latency:
    """The estimated time of one launch of a kernel, and its terms."""

    launch: float
    """Seconds of a launch of any kernel with these buffers."""
    start: float
    """Seconds until other threads run (CPU), or in barriers of all blocks (GPU)."""
    registers: int | None
    """Registers of a thread, estimated where nothing is compiled; None on a CPU."""
    occupancy: Occupancy | None
    phases: tuple[PhaseLatency, ...]
    source: str
    """The origin of the device's constants."""

    @property
    def seconds(self) -> float:
        """Return the seconds of one launch in all."""
        return self.launch + self.start + sum(p.seconds for p in self.phases)

    @property
    def bytes_read_again(self) -> int:
        """Return the bytes that one launch reads again from memory."""
        return sum(p.again for p in self.phases)

    @property
    def bound(self) -> str:
        """Return the largest term of the time: "launch", "memory" or "instructions"."""
        terms = {
            "launch": self.launch + self.start,
            "memory": sum(p.memory for p in self.phases if p.memory >= p.compute),
            "instructions": sum(p.compute for p in self.phases if p.compute > p.memory),
        }
        return max(terms, key=lambda name: terms[name])

    def __str__(self) -> str:
        lines = [f"{format_seconds(self.seconds)}, most of it {self.bound}"]
        lines.append(f"  launch {format_seconds(self.launch)}, threads or barriers {format_seconds(self.start)}")
        if self.occupancy is not None:
            held = self.occupancy
            lines.append(
                f"  occupancy {held.share:.0%}: {held.blocks} blocks on a multiprocessor, limited by {held.limit}; "
                f"{self.registers} registers"
            )
        unit = "warp" if self.occupancy is not None else "block"
        for k, p in enumerate(self.phases):
            head = f"  phase {k}: " if len(self.phases) > 1 else "  "
            lines.append(
                f"{head}instructions {format_seconds(p.compute)} = {p.waves:,} waves ({p.warps:,} {unit}s, "
                f"{p.resident:,} at a time) x {p.warp_cycles:,.0f} cycles of a {unit}"
            )
            most = sorted(p.instructions, key=lambda item: -item[1])[:6]
            lines.append(f"    a {unit}'s: " + ", ".join(f"{n:,.4g} {name}" for name, n in most))
            twice = f", {format_bytes(p.again)} of it read again" if p.again else ""
            rate = f"{format_bytes(p.bandwidth)}/s"
            plain = p.bytes / p.bandwidth if p.bytes else 0.0
            told = f"{format_bytes(p.bytes)} / {rate}{twice}"
            if p.memory > 1.01 * plain:
                told += f" ({format_seconds(plain)}), longer for accesses in pieces of lines"
            lines.append(f"    memory {format_seconds(p.memory)} = {told}")
        lines.append(f"  constants: {self.source}")
        return "\n".join(lines)


def latency(
    kernel: ScheduledKernel, device: Device, compiled: PtxKernel | None = None, known: Constants | None = None
) -> Latency:
    """Return the estimate for one launch of ``kernel`` on ``device``.

    ``compiled`` has the registers of a kernel for a GPU, from which the occupancy follows; without it, they are
    estimated from live ranges. ``known`` are constants to use instead of the device's own.
    """
    known = known or constants_of(device)
    used, held = (None, None) if device.target.lanes_are_vectors else _held(kernel, device, compiled)
    parts = iter(counted(kernel, device))
    phases = tuple(_phase(kernel, phase, [next(parts) for _ in phase], device, held, known) for phase in kernel.phases)
    if device.target.lanes_are_vectors:
        start = known.start * sum(p.resident > 1 for p in phases)
    else:
        start = known.start * (len(phases) - 1 + sum(map(_barriers, kernel.parts)))
    launch = known.launch + known.buffer * (len(kernel.inputs) + len(kernel.outputs))
    return Latency(launch, start, used, held, phases, known.source)


def _held(kernel: ScheduledKernel, device: Device, compiled: PtxKernel | None) -> tuple[int, Occupancy]:
    """Return a thread's registers, and the occupancy that they allow."""
    used = registers(kernel, device) if compiled is None else compiled.registers
    static = 0 if compiled is None else compiled.shared_bytes
    return used, occupancy(used, static + kernel.shared_bytes, kernel.threads, device)


def _barriers(part: Part) -> int:
    """Return the number of barriers of all blocks inside a part's loop."""
    team = part.team
    return 0 if team is None or team.loop.blocks == 1 else team.loop.likely_trips * len(team.groups)


def counted(kernel: ScheduledKernel, device: Device) -> list[Counted]:
    """Return the instructions of all threads of each part of a kernel, by class, and the bytes that it reads."""
    made = for_target(kernel, kernel_of(kernel)).parts
    return [_counted(part, m, device) for part, m in zip(kernel.parts, made, strict=True)]


def _counted(part: Part, made: KernelPart, device: Device) -> Counted:
    if part.team is not None:
        return Counted(team_work(part.team, part.team.loop, device), Reads({}, 0.0, 0.0))
    total = part_work(made, part.split.blocks, device)
    return total if part.pattern.loop is None else replace(total, reads=Reads({}, 0.0, 0.0))


def _phase(
    kernel: ScheduledKernel,
    parts: Sequence[Part],
    counts: Sequence[Counted],
    device: Device,
    held: Occupancy | None,
    known: Constants,
) -> PhaseLatency:
    total: Work = defaultdict(float)
    for one in counts:
        for name, n in one.work.items():
            total[name] += n
    blocks = sum(p.blocks for p in parts)
    resident = blocks if held is None else min(blocks, resident_blocks(held, device, kernel.cluster))
    once, again = _volume(kernel.graph, parts, [one.reads for one in counts], device, resident)
    volume = once + again
    if held is None:
        machine = _Machine.of_cpu(blocks, _bytes_of_work(kernel), volume, device, known)
    else:
        machine = _Machine.of_gpu(blocks, resident, kernel.threads, volume, held, device, known)
    each = {name: n / device.warp_size / machine.warps for name, n in total.items() if n}
    costs = {name: n * machine.cycles(name) for name, n in each.items()}
    of_parts = [sum(n * machine.cycles(name) for name, n in one.work.items()) / device.warp_size for one in counts]
    warps = [part.blocks * machine.warps // blocks for part in parts]
    waves = ceil(machine.warps / machine.resident)
    cycles = makespan([(n, c / n) for n, c in zip(warps, of_parts, strict=True)], machine.resident) / waves
    compute = waves * cycles / (device.clock_ghz * 1e9)
    memory = max(volume / machine.bandwidth, sum(one.pieces for one in counts) / known.level2)
    # The time of memory instructions that hit the nearest cache is part of both terms: it counts once, in the longer
    # one, and does not need to be hidden.
    both = compute * sum(costs.get(name, 0.0) for name in ACCESSES) / sum(costs.values())
    seconds = max(compute, memory) + known.overlap * max(0.0, min(compute, memory) - both)
    return PhaseLatency(
        *(machine.warps, machine.resident, tuple(each.items()), cycles, compute),
        *(volume, machine.bandwidth, memory, seconds, again),
    )


def makespan(groups: Sequence[tuple[int, float]], resident: int) -> float:
    """Return the time of ``resident`` places for all of ``groups``, each a number of equal tasks and the time of one.
    Tasks start in order, each at the first free place. For one group it is the number of waves times a task's time.
    """
    ends = [(0.0, resident)]
    for count, each in groups:
        while count and each > 0:
            ends.sort()
            end, places = ends[0]
            if count >= resident and ends[-1][0] - end <= each:  # Each place runs one task of every wave.
                whole, count = divmod(count, resident)
                ends = [(end + whole * each, places) for end, places in ends]
                continue
            ahead = (ends[1][0] - end) / each if len(ends) > 1 else 0.0
            waves = max(1, min(int(ahead), count // places))
            taken = min(places, count)
            count -= taken * waves
            ends[0] = (end + each * waves, taken)
            if taken < places:
                ends.append((end, places - taken))
    return max(end for end, _ in ends)


def _volume(
    graph: Graph, parts: Sequence[Part], reads: Sequence[Reads], device: Device, resident: int
) -> tuple[int, int]:
    """Return the bytes that parts read and write together, shared inputs once; and for a GPU with ``resident`` blocks
    at a time, the bytes read again that the level-2 cache no longer has. A CPU's bandwidth curve includes the latter.
    """
    read: dict[int, float] = {}
    again = 0.0
    for part, own in zip(parts, reads, strict=True):
        for number, i in enumerate(part.pattern.inputs):
            read[i] = max(read.get(i, 0.0), own.first.get(number, node_bytes(graph[i])))
        rows = min(resident, part.blocks) // part.split.cluster * part.split.rows_per_block
        if not device.target.lanes_are_vectors and rows * own.between > device.l2_bytes:
            again += own.again
    written = {i for part in parts for i in part.pattern.outputs}
    return round(sum(read.values())) + sum(node_bytes(graph[i]) for i in written), round(again)


class _Machine(Struct, frozen=True):
    """The device's resources during one phase."""

    warps: int
    resident: int
    on_one: int
    """Warps that share a multiprocessor."""
    bandwidth: float
    known: Constants

    @classmethod
    def of_cpu(cls, blocks: int, work_bytes: int, volume: int, device: Device, known: Constants) -> _Machine:
        """Return the blocks on the cores that the launcher wakes for so much work."""
        cores = max(1, min(blocks, device.multiprocessors, work_bytes // BYTES_PER_THREAD))
        copying = max(
            1, min(device.multiprocessors, volume // BYTES_PER_THREAD)
        )  # The bandwidth curve was measured with so many cores.
        return cls(blocks, cores, 1, known.bandwidth(volume) * min(1.0, cores / copying), known)

    @classmethod
    def of_gpu(
        cls, blocks: int, resident: int, threads: int, volume: int, held: Occupancy, device: Device, known: Constants
    ) -> _Machine:
        """Return the warps on multiprocessors, as many as their occupancy allows."""
        per_block = ceil(threads / device.warp_size)
        on_one = min(held.blocks, ceil(blocks / device.multiprocessors)) * per_block
        # Half of the multiprocessors, with one block each, saturate the memory.
        share = min(1.0, 2 * min(blocks, device.multiprocessors) / device.multiprocessors)
        most = max(rate for _, rate in known.curve)
        return cls(blocks * per_block, resident * per_block, on_one, min(known.bandwidth(volume), share * most), known)

    def cycles(self, name: str) -> float:
        """Return the cycles of a warp's instruction of a class: its latency, or the issue of all resident warps'."""
        return max(self.known.wait.get(name, 0.0), self.on_one * self.known.issue[name])


def _bytes_of_work(kernel: ScheduledKernel) -> int:
    """Return the bytes by which a CPU's launcher chooses threads: a phase's share of buffers, or of a loop's work."""
    buffers = sum(node_bytes(kernel.graph[i]) for i in (*kernel.inputs, *kernel.outputs))
    return (work_of(kernel) or buffers) // len(kernel.phases)
