"""What stitching a function does, or would do, on a device: the value that ``stitch_jit(f).plan(...)`` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jax_stitch.inspect.report.verdict import verdict
from jax_stitch.util.formatting import format_bytes, format_fewer, format_ratio, format_seconds, shorten, text_table
from jax_stitch.util.user_errors import api_boundary

if TYPE_CHECKING:
    import networkx

    from jax_stitch.devices import Device
    from jax_stitch.frontend.capture.traffic import Traffic
    from jax_stitch.inspect.explain import Explanation
    from jax_stitch.inspect.planned import PlannedProgram, ProgramKernel
    from jax_stitch.inspect.report.plan_diff import PlanDiff
    from jax_stitch.latency import Latency

COMPOSITIONS = ("packing", "thread", "warp", "block", "cluster", "grid")
"""How the parts of a kernel meet, from apart to across the whole device."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch dimensions: blocks, threads per block, dynamic shared memory per block in bytes."""

    grid: int
    block: int
    shared_bytes: int = 0

    def __str__(self) -> str:
        shared = f", {format_bytes(self.shared_bytes)} shared" if self.shared_bytes else ""
        return f"{self.grid:,} x {self.block:,}{shared}"


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One stitched kernel."""

    name: str
    source: str = field(repr=False)
    """C++ against the runtime header, for NVRTC and for a host compiler."""
    launch: Launch
    ops: tuple[str, ...] = field(repr=False)
    """Names of the HLO instructions that it computes."""
    xla_kernels: tuple[str, ...]
    """Names of the kernels of XLA that it takes the place of, in whole or in part."""
    composition: tuple[str, ...]
    """A subset of ``COMPOSITIONS``, in that order."""
    schedule: str
    """How the work of its parts is split, in the notation of templates (see ``jax_stitch.schedule.template``)."""
    bytes_read: int
    """Device memory read per launch, bytes; what is read again and is no longer in level-2 cache counts again."""
    bytes_written: int
    launches: int = 1
    """Launches per call of the function: more than one inside a loop."""
    measured: tuple[float, float] | None = None
    """With ``autotune``: seconds of a launch, and those of XLA's own kernels for the same operations."""
    latency: Latency | None = field(default=None, repr=False)
    """What the latency-evaluator predicts for one launch; ``print`` shows its terms."""
    copies: tuple[str, ...] = ()
    """Names of instructions of others that it computes for itself too, since that costs less than reading them."""

    def __repr__(self) -> str:
        moved = f"reads {format_bytes(self.bytes_read)}, writes {format_bytes(self.bytes_written)}"
        return f"<KernelPlan {self.name}: {self.launch}, {len(self.ops)} operations, {moved}>"

    def _repr_html_(self) -> str:
        from jax_stitch.inspect.page.summary import kernel_summary

        return kernel_summary(self)

    def __post_init__(self) -> None:
        unknown = set(self.composition) - set(COMPOSITIONS)
        if unknown:
            raise ValueError(
                f"kernel {self.name}: unknown composition {sorted(unknown)}; known: {', '.join(COMPOSITIONS)}"
            )


@dataclass(frozen=True, slots=True)
class Boundary:
    """An HLO instruction at which stitching stopped, and why."""

    instruction: str
    op: str
    reason: str
    kernel: str = ""
    """The kernel of XLA that runs the instruction."""


@dataclass(frozen=True)
class Plan:
    """A fusion plan. ``print(plan)`` shows it, ``to_html`` draws it.

    The figures of the whole programs are counted on what XLA's compiler makes of them, on first access (``count_xla``
    and ``count_stitched`` are called once each): ``launches`` and ``bytes`` on the program rebuilt with the stitched
    kernels, ``xla_launches`` and ``xla_bytes`` on XLA's default compilation.
    """

    function: str
    device: Device
    kernels: tuple[KernelPlan, ...]
    boundaries: tuple[Boundary, ...]
    bound_bytes: int
    """The least traffic there can be: every input read once, every output written once."""
    hlo: str = field(repr=False)
    """The optimized HLO that was planned: XLA's final program, if no library hides in it what is computed."""
    count_xla: Callable[[], Traffic] = field(repr=False, compare=False)
    count_stitched: Callable[[], Traffic] = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """Time spent in each stage."""
    planner: str = "beam"
    """What chose the kernels."""
    explain_instruction: Callable[[str], Explanation] | None = field(default=None, repr=False, compare=False)
    """What ``explain`` calls; None where nothing was planned."""
    unstitched: str | None = None
    """Why the whole function is left to ``jax.jit``, as the end of a sentence; None where it is not."""
    final_hlo: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    """XLA's optimized HLO of its default compilation, compiled when first asked for; None where it is ``hlo``."""
    rebuilt_hlo: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    """XLA's optimized HLO of the program with stitched kernels, compiled when first asked for; None without kernels."""
    stages: Mapping[str, Callable[[], str]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    """Functions that make the text of each stage, by its name (``jax_stitch.jit.stages``)."""

    @cached_property
    def xla_traffic(self) -> Traffic:
        """Return kernels, launches and bytes of XLA's own program."""
        return self.count_xla()

    @cached_property
    def stitched_traffic(self) -> Traffic:
        """Return kernels, launches and bytes of the rebuilt program, compiled by XLA for the device."""
        return self.count_stitched()

    @cached_property
    def xla_hlo(self) -> str:
        """Return XLA's final program, which ``jax.jit`` would run: what all figures compare with."""
        return self.hlo if self.final_hlo is None else self.final_hlo()

    @cached_property
    def stitched_hlo(self) -> str:
        """Return the program with stitched kernels as XLA compiles it for the device: what ``launches`` and ``bytes``
        are counted on. Without kernels it is XLA's own.
        """
        return self.xla_hlo if self.rebuilt_hlo is None else self.rebuilt_hlo()

    @cached_property
    def program(self) -> PlannedProgram:
        """Return the operations of the program, and both programs' kernels for them; see ``inspect/planned/``."""
        from jax_stitch.inspect.planned import planned

        return planned(self)

    @property
    def launches(self) -> int:
        """Return the kernel launches per call with stitching; a loop body counts once per trip."""
        return self.stitched_traffic.launches

    @property
    def xla_launches(self) -> int:
        """Return the kernel launches per call of ``jax.jit``."""
        return self.xla_traffic.launches

    @property
    def bytes(self) -> int:
        """Return the device-memory traffic per call with stitching, in bytes."""
        return self.stitched_traffic.bytes

    @property
    def xla_bytes(self) -> int:
        """Return the device-memory traffic per call of ``jax.jit``, in bytes."""
        return self.xla_traffic.bytes

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<Plan of {self.function} on {self.device.name}: {len(self.kernels)} stitched kernels, {self.planner}>"

    def _repr_html_(self) -> str:
        from jax_stitch.inspect.page.summary import summary

        return summary(self)

    def _lines(self) -> Iterator[str]:
        yield f"{self.function} on {self.device}, planner {self.planner}"
        yield ""
        yield text_table(("per call", "jax.jit", "stitched", "gain"), self.figures(), right=(1, 2, 3), indent="  ")
        yield f"  bound: {format_bytes(self.bound_bytes)} (every input read once, every output written once)"
        yield f"  {self.verdict()}"
        yield ""
        if self.kernels:
            yield text_table(
                ("stitched kernel", "replaces", "ops", "composition", "blocks x threads", "read", "written"),
                [_row(k, self.replaced(p)) for k, p in zip(self.kernels, self.program.after.kernels, strict=False)],
                right=(1, 2, 5, 6),
                indent="  ",
            )
            yield ""
            yield text_table(
                ("stitched kernel", "predicted", "most of it", "schedule"),
                [(shorten(k.name, 48), *_predicted(k), shorten(k.schedule, 96)) for k in self.kernels],
                right=(1,),
                indent="  ",
            )
            timed = [(shorten(k.name, 48), *map(format_seconds, k.measured)) for k in self.kernels if k.measured]
            if timed:
                yield ""
                yield text_table(("stitched kernel", "measured", "XLA's own"), timed, right=(1, 2), indent="  ")
        else:
            yield "  No stitched kernels."
        if self.boundaries:
            yield ""
            yield text_table(
                ("left to XLA", "op", "reason", "for example"),
                [(f"{len(bs):,}", op, reason, shorten(bs[0].instruction, 40)) for (op, reason), bs in self.stops()],
                right=(0,),
                indent="  ",
            )
        for note in self.all_notes():
            yield f"  note: {note}"
        if self.seconds:
            yield "  time: " + ", ".join(f"{stage} {format_seconds(s)}" for stage, s in self.seconds.items())

    def verdict(self) -> str:
        """Return what stitching brings over XLA's final program, in a sentence or two."""
        return verdict(self)

    def replaced(self, kernel: ProgramKernel) -> str:
        """Return how many launches of XLA's final program a stitched kernel of ``program.after`` is in place of."""
        before = self.program.before.kernels
        launches = f"{sum(before[b].launches for b in kernel.replaces):,}"
        return f"{launches} + parts of {len(kernel.shares)}" if kernel.shares else launches

    def figures(self) -> list[tuple[str, str, str, str]]:
        """Return (what, jax.jit, stitched, gain) as text: the rows of the table of whole-program figures."""
        return [
            (
                "launches",
                f"{self.xla_launches:,}",
                f"{self.launches:,}",
                format_fewer(self.launches, self.xla_launches),
            ),
            ("bytes", format_bytes(self.xla_bytes), format_bytes(self.bytes), format_fewer(self.bytes, self.xla_bytes)),
            (
                "bytes / bound",
                format_ratio(self.xla_bytes, self.bound_bytes),
                format_ratio(self.bytes, self.bound_bytes),
                "",
            ),
        ]

    def all_notes(self) -> tuple[str, ...]:
        """Return ``notes``, and what to know about the counts."""
        loops = self.xla_traffic.unknown_trips
        unknown = (f"loops of unknown length count as one trip: {', '.join(loops)}",) if loops else ()
        return self.notes + unknown

    def stops(self) -> list[tuple[tuple[str, str], list[Boundary]]]:
        """Return the boundaries gathered by (op, reason), the most frequent first."""
        gathered: dict[tuple[str, str], list[Boundary]] = {}
        for stop in self.boundaries:
            gathered.setdefault((stop.op, stop.reason), []).append(stop)
        return sorted(gathered.items(), key=lambda item: -len(item[1]))

    @api_boundary
    def explain(self, instruction: str) -> Explanation:
        """Return why an instruction of the optimized HLO (or the last one of a kernel of XLA) is where it is: its
        stitched kernel or the reason that there is none, the other candidates and by how much they lost, and the rules
        by which XLA's own fusion stopped beside it. ``print`` shows it.

        Raises ``UnknownInstructionError``, which lists names that are close.
        """
        if self.explain_instruction is None:
            raise ValueError(f"nothing of {self.function} was planned: {'; '.join(self.notes) or 'it is empty'}")
        return self.explain_instruction(instruction)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: everything but ``hlo``."""
        return {
            "function": self.function,
            "device": self.device.name,
            "planner": self.planner,
            "launches": self.launches,
            "xla_launches": self.xla_launches,
            "bytes": self.bytes,
            "xla_bytes": self.xla_bytes,
            "bound_bytes": self.bound_bytes,
            "kernels": [asdict(k) for k in self.kernels],
            "boundaries": [asdict(b) for b in self.boundaries],
            "notes": list(self.all_notes()),
            "seconds": dict(self.seconds),
        }

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @api_boundary
    def to_networkx(self, of: str = "operations") -> networkx.DiGraph:
        """Return the program as a graph to analyse: its "operations", or the "kernels" of the stitched program, or
        "xla_kernels". ``jax_stitch.inspect.planned.network`` lists the attributes.
        """
        from jax_stitch.inspect.planned.network import network

        return network(self, of)

    @api_boundary
    def diff(self, other: Plan) -> PlanDiff:
        """Return what ``other`` does otherwise: for another device, by another planner, of another commit. ``print``
        shows it, and its ``to_html`` writes a page.
        """
        from jax_stitch.inspect.report.plan_diff import diff

        return diff(self, other)

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page: source, graph and kernels side by side, linked. It needs no network."""
        from jax_stitch.inspect.page import page

        target = Path(path)
        target.write_text(page(self), encoding="utf-8")
        return target


def _predicted(kernel: KernelPlan) -> tuple[str, str]:
    """Return what a launch is predicted to take, and what most of that is."""
    latency = kernel.latency
    return ("-", "-") if latency is None else (format_seconds(latency.seconds), latency.bound)


def _row(kernel: KernelPlan, replaces: str) -> tuple[str, ...]:
    times = f" x{kernel.launches:,}" if kernel.launches != 1 else ""
    return (
        shorten(kernel.name, 48) + times,
        replaces,
        str(len(kernel.ops)),
        "+".join(kernel.composition),
        str(kernel.launch),
        format_bytes(kernel.bytes_read),
        format_bytes(kernel.bytes_written),
    )
