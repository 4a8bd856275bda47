"""Runs suites of workloads in processes apart, and writes what is known after each workload."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import peers
from bench.about import about
from bench.clock import begun
from bench.files import Results
from bench.measure import Request
from bench.rows import WAITING, Row, Side, Time, row_from
from bench.suites import Case
from bench.tables import line
from bench.worker import LATE, Worker
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
    """Seconds after which a worker is ended."""
    budget: float | None = None
    """Seconds after which no further workload is begun, and none goes on."""
    cold: bool = True
    """Whether to compile with an empty cache first."""
    peers: bool = True
    ungraphed: bool = True
    """Whether to time without CUDA graphs too."""
    jobs: int = 1
    """Workloads at a time; what is timed is timed alone."""


class Workers:
    """The processes of one run: for cold compiles, for all the rest, without CUDA graphs, and for peers.

    Caches are a folder of their own where compiles are to be cold, which is filled by what only the first stitched
    function of all pays for, such as building the FFI handler.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> Workers:
        device = self._options.device
        own: dict[str, str] = {}
        if self._options.cold and device in ATTACHED:
            folder = tempfile.TemporaryDirectory(prefix="bench-cache-", ignore_cleanup_errors=True)
            own = {CACHE: self._stack.enter_context(folder)}
        self._cold, self._warm, self._ungraphed, self._peer = (
            self._stack.enter_context(Worker(environment(device) | own | more))
            for more in ({}, {}, {"XLA_FLAGS": _ungraphed()}, {})
        )
        if own:
            self._cold.ask("bench.peers.answers", {"peer": peers.FIRST_USE}, self._options.limit)
        return self

    def __exit__(self, *how: Any) -> None:
        self._stack.__exit__(*how)

    def copy_bandwidth(self) -> float | None:
        """Bytes per second that a plain copy reads and writes together; None where it failed."""
        request = {"peer": peers.COPY, "device": self._options.device}
        answer = self._peer.ask("bench.peers.answers", request, self._options.limit)
        return None if answer.values is None else float(answer.values["bytes_per_second"])

    def row(self, case: Case, limit: float) -> Row:
        """All that the options want to know of a case, each step of it within ``limit`` seconds."""
        options = replace(self._options, limit=limit)
        request = _request(case, options)
        attached = options.device in ATTACHED
        cold = None
        if attached and options.cold:
            cold = self._ask(self._cold, replace(request, what="compile"), limit)
            if cold.status == "failed":
                return cold
        row = self._ask(self._warm, request, limit)
        if cold is not None:
            row = _with(row, cold, "cold")
        if row.status in ("ok", "plain") and options.device == "cuda" and options.ungraphed:
            row = _without_graphs(row, self._ask(self._ungraphed, replace(request, what="times"), limit))
        if row.status in ("ok", "plain") and attached and options.peers:
            row = self._with_peers(row, request, limit)
        return row

    def _ask(self, worker: Worker, request: Request, limit: float) -> Row:
        answer = worker.ask("bench.measure", asdict(request), limit)
        if answer.values is None:
            return _failed(request, answer.stage, answer.reason)
        return row_from(answer.values)

    def _with_peers(self, row: Row, request: Request, limit: float) -> Row:
        found: dict[str, Time] = {}
        notes: list[str] = []
        for peer in peers.available(row.workload, request.device):
            answer = self._peer.ask("bench.peers.answers", {"peer": peer, **asdict(request)}, limit)
            if answer.values is None:
                notes.append(f"{peer}: failed: {answer.reason}")
            else:
                found[peer] = Time(answer.values["median"], answer.values["spread"], tuple(answer.values["samples"]))
        return replace(row, peers=found, notes=(*row.notes, *notes))


def run(cases: Sequence[Case], options: Options, path: Path | None, console: Console) -> Results:
    """Measures cases one by one.

    ``path`` is replaced after each: whenever the run ends, the file has a row for every case, if only to say that it
    was not reached.
    """
    start = begun()
    facts = about(options.device) | {"options": asdict(options)}
    rows = [_failed(_request(case, options), WAITING, "the run ended before it") for case in cases]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with Workers(options) as workers, shown as progress:
        if options.device in ATTACHED:
            facts["copy_bytes_per_second"] = workers.copy_bandwidth()
        _write(path, facts, rows)
        task = progress.add_task("", total=len(cases))
        numbers, writing = count(), Lock()

        def some(workers: Workers) -> None:
            while (i := next(numbers)) < len(cases):
                progress.update(task, description=cases[i].workload.name)
                found = _row(cases[i], workers, options, start)
                with writing:
                    rows[i] = found
                    _write(path, facts, rows)
                    console.print(line(found), highlight=False, markup=False)
                progress.advance(task)

        def others() -> None:
            with Workers(options) as own:
                some(own)

        with ThreadPoolExecutor(options.jobs) as threads:
            for future in [threads.submit(some, workers), *(threads.submit(others) for _ in range(options.jobs - 1))]:
                future.result()
    return Results(facts, tuple(rows))


def _row(case: Case, workers: Workers, options: Options, start: float) -> Row:
    """One workload, within what is left of the run's time."""
    left = inf if options.budget is None else options.budget - (time.monotonic() - start)
    row = workers.row(case, min(options.limit, left)) if left > 0 else None
    if row is None or (left < options.limit and row.reason.startswith(LATE)):
        return _failed(_request(case, options), WAITING, f"the {options.budget:.0f} s of this run were used up")
    return row


def _write(path: Path | None, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    if path is not None:
        Results(facts, tuple(rows)).write(path)


def _request(case: Case, options: Options) -> Request:
    name, device = case.workload.name, options.device
    return Request(name, case.size, case.checked, options.dtype, device, "all", options.seconds)


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


def _failed(request: Request, stage: str, reason: str) -> Row:
    family = ALL[request.workload].family
    return Row(request.workload, family, request.size, request.dtype, request.device, "failed", stage, reason)


def constants(device: str, limit: float) -> dict[str, Any]:
    """``bench.constants`` of an attached device, on a GPU also without CUDA graphs, and where they were measured."""
    found: dict[str, Any] = {"about": about(device)}
    for name, more in (("default", {}), ("without graphs", {"XLA_FLAGS": _ungraphed()})):
        if name == "default" or device == "cuda":
            with Worker(environment(device) | more) as worker:
                answer = worker.ask("bench.constants", {"device": device}, limit)
            found[name] = answer.values or {"failed": f"{answer.stage}: {answer.reason}"}
    return found


def _ungraphed() -> str:
    return f"{os.environ.get('XLA_FLAGS', '')} {NO_GRAPHS}".strip()


def environment(device: str) -> dict[str, str]:
    """Of a worker: JAX on that device, sharing its memory, and nothing of JAX's own cache of compiled programs."""
    return {
        "JAX_PLATFORMS": {"cuda": "cuda,cpu"}.get(device, "cpu"),
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
