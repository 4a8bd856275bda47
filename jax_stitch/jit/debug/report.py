"""A folder that shows a failure of JAX Stitch without the user's code."""

from __future__ import annotations

import json
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

import hlo_parser
from jax_stitch import devices
from jax_stitch.backend.compile.surroundings import surroundings
from jax_stitch.frontend.capture import Capture
from jax_stitch.jit.debug import outcome as outcomes
from jax_stitch.jit.debug.case import PROGRAM, Case, load, save
from jax_stitch.jit.debug.outcome import Outcome
from jax_stitch.jit.debug.reductions import simplest
from jax_stitch.jit.debug.reports import Settings, parent
from jax_stitch.pipeline import Stitched
from jax_stitch.schedule.template import templates_of

SCRIPT = '''"""Runs the program of this folder under XLA alone and stitched, and prints what differs.
the code that the program was made from.
"""

from pathlib import Path

from jax_stitch.jit.debug.report import reproduce

raise SystemExit(reproduce(Path(__file__).parent))
'''


def write_report(
    captured: Capture,
    stitched: Stitched | None,
    failure: Exception | str,
    arguments: Sequence[Any] | None,
    settings: Settings | None = None,
) -> Path:
    """Write what there is to know about a failure to a new folder, and says on the standard error where it lies.

    ``failure`` is what was raised, or what is wrong with the results; ``arguments`` are those of the HLO's entry
    (``Capture.flatten``), where they are known. Without ``settings`` it was planned as is usual for the device.
    """
    if settings is None:
        laid_out_for = captured.device if stitched is None else stitched.device
        settings = Settings(captured.device.name, laid_out_for.name)
    shown = failure if isinstance(failure, str) else "".join(traceback.format_exception(failure))
    folder = _new_folder(captured.name)
    print(f"JAX Stitch: a report on {captured.name} is in {folder}", file=sys.stderr)
    (folder / "failure.txt").write_text(shown + "\n")
    (folder / PROGRAM).write_text(captured.text)  # It may be this that cannot be read.
    module = hlo_parser.parse(captured.text)
    values = {}
    if arguments is not None:
        parameters = module.entry.parameters
        values = {p.name: np.asarray(a) for p, a in zip(parameters, arguments, strict=True)}
    _write(Case(module, settings, values), stitched, shown, folder)
    return folder


def essence(text: str) -> str:
    """Return a program's text without what says where it comes from; as it is, where it cannot be read."""
    try:
        return str(simplest(Case(hlo_parser.parse(text))).module)
    except hlo_parser.HloParseError:
        return text


def write_case(case: Case, failure: Outcome, folder: Path) -> Path:
    """Return the same for a program by itself, in this folder, in place of what was there."""
    folder.mkdir(exist_ok=True)
    _write(case, None, str(failure), folder)
    return folder


def reproduce(folder: Path) -> int:
    """Run the program of a report, prints what becomes of it, and returns 1 if it fails, else 0."""
    outcome = outcomes.outcome(load(folder))
    print(outcome)
    return int(outcome.fails)


def _new_folder(name: str) -> Path:
    """Return a folder of its own: others may write theirs at the same time."""
    above = parent()
    above.mkdir(parents=True, exist_ok=True)
    stem = "jax_stitch_debug_" + "".join(c if c.isalnum() else "_" for c in name)
    n = 0
    while True:
        n += 1
        folder = (above / f"{stem}_{n}").resolve()
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder


def _write(case: Case, stitched: Stitched | None, failure: str, folder: Path) -> None:
    save(case, folder)
    (folder / "failure.txt").write_text(failure + "\n")
    (folder / "reproduce.py").write_text(SCRIPT)
    (folder / "versions.json").write_text(json.dumps(_versions(case.settings), indent=2) + "\n")
    plan = stitched if stitched is not None else _planned(case)
    if isinstance(plan, str):
        (folder / "plan.txt").write_text(plan + "\n")
        return
    (folder / "plan.txt").write_text("\n".join(_plan_lines(plan)) + "\n")
    for source in plan.sources:
        (folder / f"{source.name}.cpp").write_text(source.text)


def _planned(case: Case) -> Stitched | str:
    """Return the plan of a case, or why there is none: its failure may be in planning."""
    try:
        return outcomes.stitched(case)
    except Exception as error:
        return f"There is no plan:\n{''.join(traceback.format_exception(error))}"


def _plan_lines(plan: Stitched) -> Iterator[str]:
    for kernel in plan.kernels:
        graph = kernel.scheduled.graph
        names = [graph[i].name or graph[i].op for p in kernel.scheduled.parts for i in sorted(p.pattern.nodes)]
        yield f"{kernel.source.name}: {'; '.join(dict.fromkeys(map(str, templates_of(kernel.scheduled))))}"
        yield f"  grid {kernel.source.grid}, block {kernel.source.block}, {kernel.launches} launches"
        yield f"  of {', '.join(names)}"
    plans = [plan.plan]
    while plans:
        current = plans.pop()
        plans += current.children.values()
        yield from (
            f"not stitched: {current.graph[b.node].name or current.graph[b.node].op}: {b.reason}"
            for b in current.boundaries
        )
        yield from (f"note: {note}" for note in current.notes)


def _versions(settings: Settings) -> dict[str, Any]:
    versions = {"python": sys.version, "platform": platform.platform(), "numpy": np.__version__}
    versions |= {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    return versions | {"surroundings": surroundings(devices.get(settings.device))}
