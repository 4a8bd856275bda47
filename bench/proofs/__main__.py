"""``python -m bench.proofs``: independent checks of the PTX of the workloads' kernels, on no GPU.

Kernels without atomics and spinning barriers are given to SentryWard (``pip install sentryward``), which proves that no
two threads race and none waits for ever, for the first blocks of the launch that they have. Of all others, and of these
too, the structure is checked: nothing that a kernel writes is read by ``ld.global.nc``, and barriers stand where all
threads of a block come. Faults are planted in kernels that passed, as controls.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax.numpy as jnp

from bench import suites
from bench.about import about
from bench.files import write_json
from bench.proofs import faults, sentryward
from bench.proofs.ptx import Kernel
from bench.workloads import ALL
from jax_stitch import devices
from jax_stitch.backend.compile import CompilerTimeout, compile_ptx
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util import platform

THREADS = 512
"""As many of a launch are given to the verifier, or two blocks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel."""

    workload: str
    kernel: str
    grid: int
    block: int
    structure: str
    """Empty where nothing is wrong; else what, and in which line of the PTX."""
    verdict: str
    """SentryWard's, or "not asked"."""
    reason: str
    seconds: float

    def __str__(self) -> str:
        told = f"{self.verdict:12} {self.reason}" + (f"  STRUCTURE: {self.structure}" if self.structure else "")
        return f"{self.workload:34} {self.kernel:44} {self.grid:6} x {self.block:4} {self.seconds:5.1f} s  {told}"


@dataclass(frozen=True, slots=True)
class Control:
    """One planted fault."""

    kernel: str
    fault: str
    by: str
    """"SentryWard" or "structure"."""
    found: bool
    told: str


def structure(text: str) -> str:
    """What is wrong about the structure of a kernel's PTX."""
    kernel = Kernel(text)
    wrong = [f"line {i.line + 1}: {i.opcode} where not all threads come" for i in kernel.divergent_barriers()]
    wrong += [f"line {i.line + 1}: {i.opcode} reads what the kernel writes" for i in kernel.stale_reads()]
    return "; ".join(wrong)


def why_not(text: str) -> str:
    """Why SentryWard is not asked: it has no model of a value that a thread waits for until other blocks change it."""
    kernel = Kernel(text)
    if kernel.uses("nanosleep"):
        return "a barrier of all blocks"
    return "atomics" if kernel.uses("atom.", "red.") else ""


def kernels(case: suites.Case, device: Device) -> Iterator[tuple[str, str, sentryward.Launch]]:
    """Name, PTX and launch of each kernel of a workload; alike ones once."""
    assert device.sm is not None
    function, shapes = ALL[case.workload.name].abstract(case.size, jnp.dtype("float32"))
    try:
        stitched = fit(stitch_capture(capture(function, shapes, device=device), device), device.sm)
    except Unstitchable:
        return
    for source in stitched.sources:
        try:
            made = compile_ptx(source, device.sm)
        except CompilerTimeout as late:
            print(f"{case.workload.name}: {source.name} is left out: {late}", flush=True)
            continue
        yield source.name, made.ptx, sentryward.Launch(source.grid, source.block, source.shared_bytes, source.cluster)


def some(launch: sentryward.Launch) -> sentryward.Launch:
    """The first blocks of a launch, two or more: what they do to each other all pairs of neighbours do. The verifier's
    time grows with the threads."""
    clusters = max(2, THREADS // (launch.block * launch.cluster))
    return replace(launch, grid=min(launch.grid, clusters * launch.cluster))


def checked(workload: str, name: str, ptx: str, launch: sentryward.Launch, seconds: float) -> Row:
    """The row of a kernel."""
    begun = time.monotonic()
    reason = why_not(ptx)
    found = sentryward.Proof("unsupported", reason)
    if not reason:
        found = sentryward.prove(ptx, Kernel(ptx).name, some(launch), seconds)
    verdict = "not asked" if reason else found.verdict
    took = time.monotonic() - begun
    return Row(workload, name, launch.grid, launch.block, structure(ptx), verdict, found.reason, took)


def controls(name: str, ptx: str, launch: sentryward.Launch, seconds: float, *, proved: bool) -> Iterator[Control]:
    """Planted faults in a kernel that has passed, one of each kind; whether they are found. A barrier taken out may be
    one that others make needless: it counts as found where any of the kernel's is missed by the verifier."""
    needless: dict[str, Control] = {}
    done: set[tuple[str, str]] = set()
    for fault, text in faults.planted(ptx):
        if fault in faults.SHOWN_BY_STRUCTURE and ("structure", fault) not in done:
            told = structure(text)
            done.add(("structure", fault))
            yield Control(name, fault, "structure", bool(told), told)
        same = fault == "blocks that do the same" and launch.grid == 1
        if proved and fault in faults.SHOWN_BY_VERIFIER and ("SentryWard", fault) not in done and not same:
            found = sentryward.prove(text, Kernel(text).name, some(launch), seconds)
            control = Control(name, fault, "SentryWard", found.verdict == "refused", found.reason or found.verdict)
            if control.found or fault != "a barrier taken out":
                done.add(("SentryWard", fault))
                yield control
            else:
                needless[fault] = control
    yield from (control for fault, control in needless.items() if ("SentryWard", fault) not in done)


def main(argv: Sequence[str] | None = None) -> int:
    """Checks and prints all; the exit status is 1 where a kernel is refused, or a planted fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m bench.proofs", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="h200", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument("--suite", choices=suites.NAMES, default="all", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each kernel (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds in all (default: %(default)s)")
    parser.add_argument("--controls", type=int, default=6, help="kernels to plant faults in (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE, and a table beside it")
    options = parser.parse_args(argv)
    platform.settle()
    if not sentryward.available():
        parser.error("SentryWard is not installed: pip install sentryward")
    device, end = devices.get(options.device), time.monotonic() + options.budget
    rows: list[Row] = []
    planted: list[Control] = []
    reached = 0
    of_kinds: Counter[bool] = Counter()
    for case in suites.cases(options.suite, only=options.only, small=True):
        if time.monotonic() > end:
            break
        reached += 1
        for name, ptx, launch in kernels(case, device):
            row = checked(case.workload.name, name, ptx, launch, options.seconds)
            rows.append(row)
            print(row, flush=True)
            proved = row.verdict == "proved"
            barriers = "bar.sync" in ptx and (proved or row.verdict == "not asked")
            if barriers and not row.structure and of_kinds[proved] < options.controls:
                of_kinds[proved] += 1
                for control in controls(name, ptx, launch, options.seconds, proved=proved):
                    planted.append(control)
                    print(
                        f"    {control.fault} ({control.by}): {'found' if control.found else 'MISSED'}: {control.told}"
                    )
        if options.json is not None:
            _write(options.json, rows, planted, reached, options)
    print(summary(rows, planted, reached))
    return int(any(r.verdict == "refused" or r.structure for r in rows) or not all(c.found for c in planted))


def summary(rows: Sequence[Row], planted: Sequence[Control], reached: int) -> str:
    """The counts, and what is not proved by reason."""
    counts = Counter(r.verdict for r in rows)
    reasons = Counter(f"{r.verdict}: {r.reason}" for r in rows if r.verdict != "proved")
    lines = [
        f"{len(rows)} kernels of {reached} of {len(ALL)} workloads: "
        + ", ".join(f"{n} {v}" for v, n in counts.most_common())
        + ".",
        f"Structure: {sum(not r.structure for r in rows)} of {len(rows)} as they have to be.",
        f"Planted faults: {sum(c.found for c in planted)} of {len(planted)} found.",
    ]
    return "\n".join([*lines, *(f"- {n} times: {reason}" for reason, n in reasons.most_common())])


def _write(
    path: Path, rows: Sequence[Row], planted: Sequence[Control], reached: int, options: argparse.Namespace
) -> None:
    told = {"about": about(options.device), "seconds": options.seconds, "workloads": reached}
    write_json(path, told | {"rows": [asdict(r) for r in rows], "controls": [asdict(c) for c in planted]})
    head = f"# Kernels for {options.device}: proofs by SentryWard, and the structure of their PTX\n\n"
    head += f"`python -m bench.proofs --device {options.device}`, sizes of the tests, float32, "
    head += "the first blocks of each launch.\n\n"
    path.with_suffix(".md").write_text(head + summary(rows, planted, reached) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
