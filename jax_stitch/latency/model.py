"""The latency-evaluator: what a scheduled kernel takes, from the instructions of its warps, how many of them a device
runs at a time, and the bytes it moves (2021 paper, equation 1; 2019 paper, M(V) = V / B(V)).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from msgspec import Struct

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.compile import Occupancy, PtxKernel, occupancy, resident_blocks
from jax_stitch.devices import Device
from jax_stitch.emit import for_target, kernel_of
from jax_stitch.graph.model import Graph
from jax_stitch.ir.traffic import BYTES_PER_THREAD
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
    """The terms of what runs between two barriers of all blocks."""

    warps: int
    """N_warp: warps in all; on a CPU blocks, each of which one core runs."""
    resident: int
    """How many the device runs at a time: its occupancy."""
    instructions: tuple[tuple[str, float], ...]
    """Of one warp (on a CPU one block, in vectors), by class."""
    warp_cycles: float
    """L_warp: what a warp takes among those resident with it; where parts are packed, the mean of the waves."""
    compute: float
    """Seconds: N_wave x L_warp."""
    bytes: int
    bandwidth: float
    """B(V) at these bytes, as far as so few warps can use it; bytes per second."""
    memory: float
    """Seconds: V / B(V), or what the level-2 cache takes for accesses in pieces where that is longer."""
    seconds: float
    """The longer of the two, and what of the other is not hidden behind it: never less than one of them."""
    again: int
    """Of the bytes, those that are read again from memory: level-2 cache has them no longer."""

    @property
    def waves(self) -> int:
        """N_wave: how many warps follow each other."""
        return ceil(self.warps / self.resident)


@dataclass(frozen=True, slots=True)
class Latency:
    """What one launch of a kernel is estimated to take, and the terms that this comes from."""

    launch: float
    """Seconds, whatever the kernel does."""
    start: float
    """Seconds until other threads run, or all blocks have met."""
    registers: int | None
    """Of a thread, estimated where nothing is compiled; None on a CPU."""
    occupancy: Occupancy | None
    phases: tuple[PhaseLatency, ...]
    source: str
    """Where the device's constants come from."""

    @property
    def seconds(self) -> float:
        """Of one launch, in all."""
        return self.launch + self.start + sum(p.seconds for p in self.phases)

    @property
    def bytes_read_again(self) -> int:
        """From memory, by one launch."""
        return sum(p.again for p in self.phases)

    @property
    def bound(self) -> str:
        """What most of the time goes to: "launch", "memory" or "instructions"."""
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
    """The estimate for one launch of ``kernel`` on ``device``.

    ``compiled`` has the registers of a kernel for a GPU, of which the occupancy is computed; without, they are
    estimated from life times. ``known`` are other constants than the device's own.
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
    """A thread's registers, and how many blocks a multiprocessor holds for them."""
    used = registers(kernel, device) if compiled is None else compiled.registers
    static = 0 if compiled is None else compiled.shared_bytes
    return used, occupancy(used, static + kernel.shared_bytes, kernel.threads, device)


def _barriers(part: Part) -> int:
    """Of all blocks, inside a loop."""
    team = part.team
    return 0 if team is None or team.loop.blocks == 1 else team.loop.likely_trips * len(team.groups)


def counted(kernel: ScheduledKernel, device: Device) -> list[Counted]:
    """The instructions of all threads of each part of a kernel, by class, and what it reads."""
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
    # What the instructions that access memory take where all is in the nearest cache is part of both: it is counted
    # once, in the longer of the two, and needs not be hidden.
    both = compute * sum(costs.get(name, 0.0) for name in ACCESSES) / sum(costs.values())
    seconds = max(compute, memory) + known.overlap * max(0.0, min(compute, memory) - both)
    return PhaseLatency(
        *(machine.warps, machine.resident, tuple(each.items()), cycles, compute),
        *(volume, machine.bandwidth, memory, seconds, again),
    )


def makespan(groups: Sequence[tuple[int, float]], resident: int) -> float:
    """What ``resident`` places take for all of ``groups``, each so many alike tasks of so much time: the tasks start in
    order, each where a place is free first. Of one group it is the waves times the task.
    """
    ends = [(0.0, resident)]
    for count, each in groups:
        while count and each > 0:
            ends.sort()
            end, places = ends[0]
            if count >= resident and ends[-1][0] - end <= each:  # Each place has one task of every wave.
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
    """Bytes that parts read and write together, what several of them read once; and of a GPU, where ``resident`` blocks
    are at work at a time, what they read again and level-2 cache has no longer: the bandwidth curve of a CPU has that.
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
    """A device as a phase sees it."""

    warps: int
    resident: int
    on_one: int
    """Warps that share a multiprocessor."""
    bandwidth: float
    known: Constants

    @classmethod
    def of_cpu(cls, blocks: int, work_bytes: int, volume: int, device: Device, known: Constants) -> _Machine:
        """Blocks on the cores that the launcher wakes for so much work."""
        cores = max(1, min(blocks, device.multiprocessors, work_bytes // BYTES_PER_THREAD))
        copying = max(
            1, min(device.multiprocessors, volume // BYTES_PER_THREAD)
        )  # those that the curve was measured with
        return cls(blocks, cores, 1, known.bandwidth(volume) * min(1.0, cores / copying), known)

    @classmethod
    def of_gpu(
        cls, blocks: int, resident: int, threads: int, volume: int, held: Occupancy, device: Device, known: Constants
    ) -> _Machine:
        """Warps on multiprocessors, as many as their occupancy allows."""
        per_block = ceil(threads / device.warp_size)
        on_one = min(held.blocks, ceil(blocks / device.multiprocessors)) * per_block
        # Half of the multiprocessors, each with a block, saturate the memory.
        share = min(1.0, 2 * min(blocks, device.multiprocessors) / device.multiprocessors)
        most = max(rate for _, rate in known.curve)
        return cls(blocks * per_block, resident * per_block, on_one, min(known.bandwidth(volume), share * most), known)

    def cycles(self, name: str) -> float:
        """Until a warp's instruction of a class is done: its own latency, or that of the other warps' turns."""
        return max(self.known.wait.get(name, 0.0), self.on_one * self.known.issue[name])


def _bytes_of_work(kernel: ScheduledKernel) -> int:
    """What the launcher of a CPU goes by in each phase: its share of the kernel's buffers, or of a loop's work."""
    buffers = sum(node_bytes(kernel.graph[i]) for i in (*kernel.inputs, *kernel.outputs))
    return (work_of(kernel) or buffers) // len(kernel.phases)
