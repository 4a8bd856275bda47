"""All checks of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from jax_stitch.kernel.model import Call, Kernel
from jax_stitch.kernel.verify.aliases import alias_findings
from jax_stitch.kernel.verify.barriers import BarrierCheck, phase_findings
from jax_stitch.kernel.verify.bounds import BoundCheck
from jax_stitch.kernel.verify.finding import Finding
from jax_stitch.kernel.verify.memory import memory_findings
from jax_stitch.kernel.verify.names import NameCheck
from jax_stitch.kernel.verify.writes import WriteCheck, output_findings


def verify(kernel: Kernel) -> list[Finding]:
    """Return the faults of a kernel; none in one that may run.

    Names and types come first: what is said of indices, writes and barriers presumes that they are right.
    """
    calls = [call for phase in kernel.phases for call in phase.calls]
    findings = [*_arguments(kernel, calls)]
    seen: set[int] = set()
    for call in calls:
        part = kernel.parts[call.part]
        named = list(NameCheck(part).findings())
        findings += named
        if call.part in seen or named:
            continue
        seen.add(call.part)
        blocks = call.last - call.first
        findings += BoundCheck(part, blocks).findings()
        findings += WriteCheck(part, blocks).findings()
        findings += BarrierCheck(part).findings()
        findings += memory_findings(part, kernel.launch.shared_bytes)
    findings += [*phase_findings(kernel), *output_findings(kernel)]
    return findings or list(alias_findings(kernel))


def _arguments(kernel: Kernel, calls: list[Call]) -> Iterator[Finding]:
    """Yield calls that give a part other buffers than it says, and blocks that do not follow each other."""
    buffers = {b.name: b for b in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    read_only = {b.name for b in kernel.inputs}
    for call in calls:
        part = kernel.parts[call.part]
        for p, name in zip(part.parameters, call.arguments, strict=True):
            given = buffers.get(name)
            if given is None or given.dtype != p.dtype or prod(given.dims) != p.size:
                yield Finding(part.name, f"{p.name} is given {name}, which is not its type and size")
            elif (p.written or p.scratch) and name in read_only:
                yield Finding(part.name, f"{p.name} is written, and {name} is not to be")
    if calls and calls[0].first != 0:
        yield Finding(kernel.name, "no part does block 0")
    for a, b in pairwise(calls):
        if a.last != b.first:
            yield Finding(kernel.name, f"blocks {a.last} to {b.first} are not of one part each")
