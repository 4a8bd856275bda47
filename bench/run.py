"""Runs suites of workloads, each in processes of its own, and writes what is known after each."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import peers
from bench.about import about
from bench.child import ask
from bench.files import Results
from bench.measure import Request
from bench.rows import Row, Side, Time, row_from
from bench.suites import Case
from bench.tables import line
from bench.workloads import ALL

ATTACHED = ("cpu", "cuda")
NO_GRAPHS = "--xla_gpu_enable_command_buffer="
CACHE = "JAX_STITCH_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Options:
    """How to run."""

    device: str
    """"cpu", "cuda", or a described device, for which launches and bytes are planned."""
    dtype: str = "float32"
    seconds: float = 4.0
    """For timing each workload."""
    limit: float = 300.0
    """Seconds after which one process is ended."""
    budget: float | None = None
    """Seconds after which no further workload is begun."""
    cold: bool = True
    """Whether to compile with an empty cache first."""
    peers: bool = True


def run(cases: Sequence[Case], options: Options, path: Path | None, console: Console) -> Results:
    """Measures cases one by one. ``path`` is replaced after each, so that it holds them all at any time."""
    start = time.monotonic()
    facts = about(options.device) | {"options": asdict(options)}
    rows: list[Row] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with _cold_caches(options) as fresh, Progress(*columns, console=console, transient=True) as progress:
        if options.device in ATTACHED:
            facts["copy_bytes_per_second"] = peers.copy_bandwidth(options.device, _environment(options.device, {}))
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.workload.name)
            if options.budget is not None and time.monotonic() - start > options.budget:
                row = _failed(case, options, "not begun", f"the {options.budget:.0f} s of this run were used up")
            else:
                row = _measured(case, options, fresh)
            rows.append(row)
            if path is not None:
                Results(facts, tuple(rows)).write(path)
            console.print(line(row), highlight=False)
            progress.advance(task)
    return Results(facts, tuple(rows))


@contextmanager
def _cold_caches(options: Options) -> Iterator[Callable[[str], Path]]:
    """Gives new cache folders by name, each a copy of one that holds only what the first use of all makes."""
    with tempfile.TemporaryDirectory(prefix="bench-caches-", ignore_cleanup_errors=True) as folder:
        first = Path(folder) / "first"
        if options.device in ATTACHED and options.cold:
            ask("bench.peers", {"peer": peers.FIRST_USE}, _environment(options.device, {CACHE: str(first)}), 300)

        def fresh(name: str) -> Path:
            new = Path(folder) / name
            if first.exists():
                shutil.copytree(first, new, dirs_exist_ok=True)
            return new

        yield fresh


def _measured(case: Case, options: Options, fresh: Callable[[str], Path]) -> Row:
    attached = options.device in ATTACHED
    own = {CACHE: str(fresh(case.workload.name))} if attached and options.cold else {}
    environment = _environment(options.device, own)
    request = Request(
        case.workload.name, case.size, case.checked, options.dtype, options.device, "all", options.seconds
    )
    try:
        cold = None
        if attached and options.cold:
            cold = _ask(replace(request, what="compile"), environment, options.limit)
            if cold.status == "failed":
                return cold
        row = _ask(request, environment, options.limit)
        if cold is not None:
            row = _with(row, cold, "cold")
        if row.status in ("ok", "plain") and options.device == "cuda":
            flags = f"{os.environ.get('XLA_FLAGS', '')} {NO_GRAPHS}".strip()
            times = _ask(replace(request, what="times"), environment | {"XLA_FLAGS": flags}, options.limit)
            row = _without_graphs(row, times)
        if row.status in ("ok", "plain") and attached and options.peers:
            row = _with_peers(row, case, options)
        return row
    finally:
        if own:
            shutil.rmtree(own[CACHE], ignore_errors=True)


def _ask(request: Request, environment: Mapping[str, str], limit: float) -> Row:
    answer = ask("bench.measure", asdict(request), environment, limit)
    if answer.values is None:
        family = _family(request.workload)
        return Row(
            *(request.workload, family, request.size, request.dtype, request.device, "failed"),
            stage=answer.stage,
            reason=answer.reason,
        )
    return row_from(answer.values["row"])


def _with(row: Row, other: Row, name: str) -> Row:
    """``row`` with one figure of both programs from another row."""
    jit, stitched = (
        replace(mine, **{name: getattr(theirs, name)})
        for mine, theirs in ((row.jit, other.jit), (row.stitched, other.stitched))
    )
    return replace(row, jit=jit, stitched=stitched)


def _without_graphs(row: Row, times: Row) -> Row:
    if times.status == "failed":
        return replace(row, notes=(*row.notes, f"without CUDA graphs: failed {times.stage}: {times.reason}"))

    def side(mine: Side, theirs: Side) -> Side:
        return replace(mine, without_graphs=theirs.time)

    return replace(row, jit=side(row.jit, times.jit), stitched=side(row.stitched, times.stitched))


def _with_peers(row: Row, case: Case, options: Options) -> Row:
    found: dict[str, Time] = {}
    notes: list[str] = []
    for peer in peers.available(case.workload.name, options.device):
        request = {
            "peer": peer,
            "workload": case.workload.name,
            "size": case.size,
            "dtype": options.dtype,
            "device": options.device,
            "seconds": options.seconds,
        }
        answer = ask("bench.peers", request, _environment(options.device, {}), options.limit)
        if answer.values is None:
            notes.append(f"{peer}: failed {answer.stage}: {answer.reason}")
        else:
            found[peer] = Time(answer.values["median"], answer.values["spread"], tuple(answer.values["samples"]))
    return replace(row, peers=found, notes=(*row.notes, *notes))


def _failed(case: Case, options: Options, stage: str, reason: str) -> Row:
    name = case.workload.name
    return Row(name, _family(name), case.size, options.dtype, options.device, "failed", stage, reason)


def _family(name: str) -> str:
    return ALL[name].family


def _environment(device: str, more: Mapping[str, str]) -> dict[str, str]:
    """Of a child: JAX on that device, and nothing of its own cache of compiled programs."""
    platforms = {"cuda": "cuda,cpu"}.get(device, "cpu")
    return {
        "JAX_PLATFORMS": platforms,
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        **more,
    }
