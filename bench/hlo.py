"""Plans and results from dumps of the workloads, before and after XLA's passes, beside those from the functions.

On the CPU dumps are run as ``stitch_hlo`` runs them. Dumps for a GPU that is only described are run by the kernels that
their plans for it have, laid out for it, on the CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib import _hlo
from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.suites import Case
from jax_stitch import devices, plan_hlo, stitch, stitch_hlo, stitch_jit
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture, capture
from jax_stitch.inspect.report.accuracy import NoReference, agreement, reference
from jax_stitch.inspect.report.plan import Plan

FORMS = ("before", "after")
"""Before XLA's passes; and after all of them, as ``jax.jit`` runs it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a dump of a workload is planned to be, beside its function; or how its results agree."""

    workload: str
    device: str
    form: str
    same: bool
    function: tuple[Any, ...]
    """Kernels, launches and bytes; of results, nothing."""
    dump: tuple[Any, ...]
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        told = "same" if self.same else f"DIFFERS: {list(self.dump)}, the function's {list(self.function)}"
        note = f" ({self.note})" if self.note else ""
        return f"{self.workload:34} {self.device:5} {self.form:9} {self.seconds:6.1f} s  {told}{note}"


def run(cases: Sequence[Case], names: Sequence[str], results: bool, target: Path | None, console: Console) -> int:
    """Compares the cases on these devices, one after the other, and returns 1 where anything differs."""
    rows: list[Row] = []
    for case in cases:
        for row in _rows(case, names, results):
            rows.append(row)
            console.print(str(row), highlight=False, markup=False)
            if target is not None:
                write_json(target, {"about": about("cpu"), "rows": [asdict(r) for r in rows]})
    differing = [r for r in rows if not r.same]
    console.print(f"{len(rows) - len(differing)} of {len(rows)} are the same")
    return int(bool(differing))


def join(files: Sequence[Path], target: Path) -> None:
    """One file of the rows of several, of which each workload may have been a process of its own, and a table beside
    it. Of a workload that is in two, the later file's rows are kept.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    commits: dict[str, str] = {}
    for file in files:
        read = json.loads(file.read_text(encoding="utf-8"))
        here: dict[str, list[dict[str, Any]]] = {}
        for row in read["rows"]:
            here.setdefault(row["workload"], []).append(row)
        found |= here
        commits |= dict.fromkeys(here, read["about"]["commit"])
    rows = [row | {"commit": commits[name]} for name in sorted(found) for row in found[name]]
    write_json(target, {"about": about("cpu"), "rows": rows})
    target.with_suffix(".md").write_text(table(rows), encoding="utf-8")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: which workloads' plans are those of their functions, and how the others differ."""
    names = sorted({row["workload"] for row in rows})
    same = [row for row in rows if row["same"]]
    lines = [
        "# Plans and results from dumps, beside those from functions",
        "",
        "`python -m bench hlo`: of each workload the HLO before XLA's passes and after them. Compared are kernels,",
        "launches, bytes, and XLA's launches and bytes; and results: on the CPU those of `stitch_hlo`, stitched and",
        "plain, and for a GPU those of its plan's kernels, laid out for it and run on the CPU.",
        "",
        f"{len(names)} workloads, {len(rows)} comparisons, {len(same)} the same.",
        "",
        "| workload | device | form | function | dump |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if not row["same"]:
            figures = " | ".join(", ".join(map(str, row[k])) or row["note"] for k in ("function", "dump"))
            lines.append(f"| {row['workload']} | {row['device']} | {row['form']} | {figures} |")
    lines += ["", f"All of them: {', '.join(names)}."]
    planned_rows = [row["workload"] for row in rows if row["function"]]
    without = [name for name in names if len([r for r in rows if r["workload"] == name and not r["function"]]) < 6]
    fewer = [name for name in names if planned_rows.count(name) < 2 * len(FORMS)]
    for what, left in (("Results not compared, or not all", without), ("Not all plans", fewer)):
        lines += [f"{what}: {', '.join(left)}."] if left else []
    return "\n".join([*lines, ""])


def _rows(case: Case, names: Sequence[str], results: bool) -> Iterator[Row]:
    for name in names:
        yield from planned(case, name)
        if results:
            yield from computed(case, name)


def planned(case: Case, name: str) -> Iterator[Row]:
    """The plans of dumps in each form, for a device of that name."""
    device = devices.get(name)
    function, args = case.workload.abstract(case.size, jnp.float32)
    captured = capture(function, args, device)
    expected = _figures(stitch_jit(function).plan(*args, device=device.name))
    for form in FORMS:
        start = time.perf_counter()
        plan = plan_hlo(dump(function, args, captured, form), device.name)
        found = _figures(plan)
        note = "" if plan.unstitched is None else plan.unstitched
        seconds = time.perf_counter() - start
        yield Row(case.workload.name, device.name, form, found == expected, expected, found, seconds, note)


def dump(function: Any, args: Sequence[Any], captured: Capture, form: str) -> str:
    """A function in one of ``FORMS``, as text with all constants."""
    if form == "after":
        return captured.default_text
    platform = "cpu" if captured.device.target.is_host else "cuda"
    lowered = jax.jit(function, keep_unused=True).trace(*args).lower(lowering_platforms=(platform,))
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    compiled: Any = lowered.compiler_ir("hlo")
    return str(compiled.as_hlo_module().to_string(options))


def _figures(plan: Plan) -> tuple[int, ...]:
    return len(plan.kernels), plan.launches, plan.bytes, plan.xla_launches, plan.xla_bytes


def computed(case: Case, name: str) -> Iterator[Row]:
    """The results of dumps for a device, against float64; on the CPU also without stitching."""
    function, args = case.workload.make(case.checked, jnp.float32)
    device = devices.get(name)
    captured = capture(function, args, device)
    expected = jax.tree.leaves(jax.jit(function)(*args))
    try:
        exact = jax.tree.leaves(reference(function, args))
    except NoReference:
        exact = expected
    leaves = captured.flatten(args)[len(captured.constants) :]
    for form in FORMS:
        start = time.perf_counter()
        for way, call in _ways(dump(function, args, captured, form), device):
            found = agreement(jax.tree.leaves(call(*leaves)), expected, exact)
            worst = [str(leaf) for leaf in found if not leaf.agrees]
            seconds = time.perf_counter() - start
            yield Row(case.workload.name, device.name, form, not worst, (), (), seconds, "; ".join([way, *worst[:1]]))


def _ways(text: str, device: Device) -> Iterator[tuple[str, Callable[..., Any]]]:
    """How a dump can be run here, and the function for it."""
    program = stitch_hlo(text, strict=True)
    if device.target.is_host:
        yield "stitched", program
        yield "plain", program.plain
    else:
        there = stitch(program.function, schedule_device=device.name, strict=True)
        yield "laid out for it, run on the CPU", jax.jit(there)
