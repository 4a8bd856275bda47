"""What the page's script is given: a plan as plain values, in columns, so that 15,000 operations stay small."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jax_stitch.inspect.explain import UnknownInstructionError
from jax_stitch.inspect.page.fold import folded
from jax_stitch.inspect.page.layout import layered
from jax_stitch.inspect.page.sources import excerpts, files_of
from jax_stitch.inspect.planned import NOWHERE, Operation, PlannedProgram, Program, ProgramKernel
from jax_stitch.inspect.planned.names import place_of
from jax_stitch.inspect.planned.programs import peak_flops
from jax_stitch.inspect.planned.stops import kernel_stops

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import KernelPlan, Plan
    from jax_stitch.latency import Latency

WORTH_FOLDING = 120
"""Operations of the smallest program whose layers are folded."""
LONGEST_HLO = 300_000
"""Characters of HLO that the page has; longer text is left to ``plan.hlo``."""


@dataclass
class _Strings:
    """Texts by number, each once."""

    known: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))


def payload(plan: Plan, seconds: float) -> dict[str, Any]:
    """Return all that the page shows of a plan. Candidates that lost are judged as long as ``seconds`` suffice."""
    program = plan.program
    strings = _Strings()
    number = drawn_numbers(program)
    drawn = list(number)
    sides = (("jax.jit", program.before), ("stitched", program.after))
    programs = [program_columns(name, side, number) for name, side in sides]
    lost = _candidates(plan, program, seconds)
    with_details(programs[1]["kernels"], plan.kernels, strings)
    for n, alternatives in lost.items():
        programs[1]["kernels"][n] |= alternatives
    return {
        "function": plan.function,
        "device": {
            "name": plan.device.name,
            "about": str(plan.device),
            "bandwidth": plan.device.memory_bandwidth,
            "peak": peak_flops(plan.device),
        },
        "planner": plan.planner,
        "verdict": plan.verdict(),
        "bound": plan.bound_bytes,
        "totals": [
            {"launches": plan.xla_launches, "bytes": plan.xla_bytes, "seconds": program.before.seconds},
            {"launches": plan.launches, "bytes": plan.bytes, "seconds": program.after.seconds},
        ],
        "ops": _columns(program, drawn, number, strings),
        "groups": _groups(program.operations, drawn, number),
        "programs": programs,
        "files": excerpts(program),
        "stops": [
            [number[s.producer], number[s.consumer], strings(s.pass_), strings(s.reason), int(s.joined)]
            for s in kernel_stops(program, plan.device, seconds)
            if s.producer in number and s.consumer in number
        ],
        "left": [[len(bs), op, reason, [b.instruction for b in bs[:40]]] for (op, reason), bs in plan.stops()],
        "notes": list(plan.all_notes()),
        "stages": dict(plan.seconds),
        "hlo": plan.hlo if len(plan.hlo) <= LONGEST_HLO else "",
        "strings": list(strings.known),
    }


def drawn_numbers(program: PlannedProgram) -> dict[int, int]:
    """Return the operations that are drawn, in order, with their numbers on the page."""
    return {i: n for n, i in enumerate(_drawn(program.operations))}


def _drawn(operations: Sequence[Operation]) -> list[int]:
    """Return what is some work, and the parameters that it reads."""
    read = {_origin(operations, o) for operation in operations if not operation.free for o in operation.operands}
    drawn = [i for i, o in enumerate(operations) if not o.free or (o.op == "parameter" and i in read)]
    last = list(range(len(operations)))  # of its body, which a loop stands after: it is where its results come out
    for i in reversed(range(len(operations))):
        if (parent := operations[i].parent) != NOWHERE:
            last[parent] = max(last[parent], last[i])
    return sorted(drawn, key=lambda i: (last[i], -i))


def _origin(operations: Sequence[Operation], i: int) -> int:
    while operations[i].free and operations[i].operands:
        i = operations[i].operands[0]
    return i


def _columns(
    program: PlannedProgram, drawn: Sequence[int], number: Mapping[int, int], strings: _Strings
) -> dict[str, Any]:
    """Return the operations that are drawn, one list for each attribute."""
    operations = program.operations
    own = [operations[i] for i in drawn]
    files = {name: n for n, name in enumerate(files_of(program))}
    places = [place_of(o.source) for o in own]
    operands = [
        list(dict.fromkeys(number[r] for o in operation.operands if (r := _origin(operations, o)) in number))
        for operation in own
    ]
    edges = [(a, b) for b, reads in enumerate(operands) for a in reads]
    laid = layered(len(own), edges)
    return {
        "name": [o.name for o in own],
        "op": [strings(o.op) for o in own],
        "type": [strings(o.type) for o in own],
        "scope": [strings(o.scope) for o in own],
        "bytes": [o.bytes for o in own],
        "file": [files.get(file, -1) for file, _ in places],
        "line": [line for _, line in places],
        "parent": [number.get(o.parent, -1) for o in own],
        "trips": [o.trips for o in own],
        "reads": operands,
        "x": [round(v) for v in laid.x],
        "y": [round(v) for v in laid.y],
    }


def _groups(operations: Sequence[Operation], drawn: Sequence[int], number: Mapping[int, int]) -> dict[str, Any] | None:
    """Return the drawing with repeated layers folded; None where there is little to fold."""
    if len(drawn) < WORTH_FOLDING:
        return None
    groups = folded(operations, drawn)
    if len(groups) > 0.8 * len(drawn):
        return None
    of = [0] * len(drawn)
    for g, group in enumerate(groups):
        for i in group.members:
            of[number[i]] = g
    edges = [
        (of[number[a]], of[number[i]])
        for i in drawn
        for o in operations[i].operands
        if (a := _origin(operations, o)) in number
    ]
    laid = layered(len(groups), [(a, b) for a, b in edges if a != b])
    return {
        "of": of,
        "label": [g.label for g in groups],
        "times": [g.times for g in groups],
        "x": [round(v) for v in laid.x],
        "y": [round(v) for v in laid.y],
    }


def program_columns(name: str, program: Program, number: Mapping[int, int]) -> dict[str, Any]:
    """Return a program's kernels, and the one of each operation that is drawn."""
    own = {number[i]: k for i, k in enumerate(program.kernel_of) if k != NOWHERE and i in number}
    shown = [[number[i] for i in k.members if i in number] for k in program.kernels]
    return {
        "name": name,
        "of": [own.get(n, NOWHERE) for n in range(len(number))],
        "bytes": [round(program.op_bytes[i]) for i in number],
        "nanoseconds": [float(f"{1e9 * program.op_seconds[i]:.3g}") for i in number],
        "kernels": [_kernel(k, members) for k, members in zip(program.kernels, shown, strict=True)],
        "transfers": [[t.producer, t.consumer, t.bytes] for t in program.transfers],
    }


def _kernel(kernel: ProgramKernel, members: Sequence[int]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "title": kernel.title,
        "kind": kernel.kind,
        "launches": kernel.launches,
        "bytes": kernel.bytes,
        "bound": kernel.bound,
        "flops": kernel.flops,
        "seconds": kernel.seconds,
        "members": list(members),
        "replaces": list(kernel.replaces),
        "shares": list(kernel.shares),
    }


def with_details(kernels: Sequence[dict[str, Any]], plans: Sequence[KernelPlan], strings: Callable[[str], int]) -> None:
    """Add to the first kernels, which are stitched, what is known of them alone."""
    for kernel, plan in zip(kernels, plans, strict=False):
        kernel |= _details(plan, strings)


def _details(plan: KernelPlan, strings: Callable[[str], int]) -> dict[str, Any]:
    """Return the details of a stitched kernel."""
    return {
        "launch": str(plan.launch),
        "composition": list(plan.composition),
        "schedule": plan.schedule,
        "read": plan.bytes_read,
        "written": plan.bytes_written,
        "source": strings(plan.source),
        "measured": None if plan.measured is None else list(plan.measured),
        "latency": None if plan.latency is None else _latency(plan.latency),
    }


def _latency(latency: Latency) -> dict[str, Any]:
    held = latency.occupancy
    return {
        "seconds": latency.seconds,
        "most": latency.bound,
        "launch": latency.launch,
        "start": latency.start,
        "registers": latency.registers,
        "occupancy": None if held is None else {"share": held.share, "blocks": held.blocks, "limit": held.limit},
        "constants": latency.source,
        "phases": [
            {
                "warps": p.warps,
                "resident": p.resident,
                "waves": p.waves,
                "cycles": p.warp_cycles,
                "compute": p.compute,
                "bytes": p.bytes,
                "bandwidth": p.bandwidth,
                "memory": p.memory,
                "seconds": p.seconds,
                "instructions": [list(item) for item in sorted(p.instructions, key=lambda item: -item[1])[:6]],
            }
            for p in latency.phases
        ],
    }


def _candidates(plan: Plan, program: PlannedProgram, seconds: float) -> dict[int, dict[str, Any]]:
    """Return, for each stitched kernel, those that take longest first, what else was possible for its main
    instruction.
    """
    if plan.explain_instruction is None:
        return {}
    end = time.perf_counter() + seconds
    by_kernel: dict[int, dict[str, Any]] = {}
    alike: dict[str, dict[str, Any]] = {}
    stitched = range(len(plan.kernels))
    for n in sorted(stitched, key=lambda n: -program.after.kernels[n].seconds):
        source = plan.kernels[n].source
        if source not in alike:
            if time.perf_counter() > end:
                continue
            alike[source] = _lost(plan, _main(program, program.after.kernels[n].members))
        by_kernel[n] = alike[source]
    return by_kernel


def _main(program: PlannedProgram, members: Iterable[int]) -> str:
    """Return the name of the operation that moves most of a kernel's bytes."""
    main = max(members, key=lambda i: program.after.op_bytes[i], default=None)
    return "" if main is None else program.operations[main].name.partition("#")[0]


def _lost(plan: Plan, name: str) -> dict[str, Any]:
    try:
        explained = plan.explain(name)
    except UnknownInstructionError:
        return {}
    return {
        "asked": name,
        "chosen": explained.reason,
        "candidates": [
            {
                "what": c.description,
                "saves": c.gain.seconds,
                "memory": c.gain.memory,
                "calls": c.gain.calls,
                "penalty": c.gain.penalty,
                "refused": c.refused,
                "behind": c.behind,
                "launches": c.launches,
            }
            for c in explained.candidates
        ],
    }
