"""What a benchmark found out about one workload, as it stands in the result files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Status = Literal["ok", "plain", "wrong", "failed"]
"""``plain``: right, but not stitched at all: it runs as ``jax.jit`` runs it, and a note says why."""

WAITING = "waiting"
"""The stage of a workload that was not begun."""


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds per call."""

    median: float
    spread: float
    """Interquartile range over the median."""
    samples: tuple[float, ...] = ()
    in_program: bool = False
    """Whether the calls were made by a loop inside one program."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel that a GPU ran, or a copy it made, and what it came to for each call."""

    name: str
    launches: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Side:
    """One program: XLA's own, or the stitched one. What was not asked for, or was never reached, is None."""

    time: Time | None = None
    without_graphs: Time | None = None
    """On a GPU, without XLA's command buffers (CUDA graphs)."""
    cold: float | None = None
    """Seconds from the function to the compiled program, nothing cached."""
    warm: float | None = None
    """The same in another process, with the kernels and plans of the first in the cache folder."""
    launches: int | None = None
    """Kernels launched per call."""
    library_launches: int | None = None
    """Those of them that are matrix products, convolutions and other calls into libraries."""
    bytes: int | None = None
    """Device memory that these kernels read and write per call."""
    predicted: float | None = None
    """Seconds that those kernels should take that are no library calls: each the more of its bytes and its launches."""
    peak_bytes: int | None = None
    """Arguments, results and temporary memory together."""
    error: float | None = None
    """The largest error against float64, relative to the largest magnitude, over all output leaves."""
    device: float | None = None
    """Seconds per call for which a GPU's kernels ran, by its own clock: without what the host and launches take."""
    kernels: tuple[Launched, ...] = ()
    """These kernels."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload at one size."""

    workload: str
    family: str
    size: tuple[int, ...]
    dtype: str
    device: str
    """Where it ran, or which described device it was planned for."""
    status: Status
    stage: str = "done"
    """What was being done when it failed."""
    reason: str = ""
    """Why it failed, or which results are wrong."""
    notes: tuple[str, ...] = ()
    jit: Side = Side()
    stitched: Side = Side()
    peers: Mapping[str, Time] = field(default_factory=dict)
    """Other ways to compute the same."""
    bound_bytes: int | None = None
    """Every input read once, every output written once."""
    checked_size: tuple[int, ...] | None = None
    """Where results were compared, if not at ``size``."""
    difference: float | None = None
    """Where results were compared at another size: how far those at ``size`` are from ``jax.jit``'s, relative."""
    floor: int | None = None
    """The least memory-intensive launches there can be with XLA's library calls as they are; see ``explore.chain``."""
    stops: tuple[tuple[int, str, str], ...] = ()
    """Where stitching stopped: how often, at which operation, and why."""

    @property
    def label(self) -> str:
        """Name and size."""
        return f"{self.workload} [{' x '.join(map(str, self.size))}]"

    @property
    def reached(self) -> bool:
        """Whether it was begun before the run ended or its time was used up."""
        return self.stage != WAITING

    @property
    def speedup(self) -> float | None:
        """Time of ``jax.jit`` over that of the stitched program."""
        if self.jit.time is None or self.stitched.time is None:
            return None
        return self.jit.time.median / self.stitched.time.median

    @property
    def device_speedup(self) -> float | None:
        """The same of the time for which the GPU's kernels ran."""
        if not self.jit.device or not self.stitched.device:
            return None
        return self.jit.device / self.stitched.device

    @property
    def memory_launches(self) -> tuple[int, int] | None:
        """Memory-intensive kernels, those that are no library calls, of both programs."""
        counts = [
            side.launches - side.library_launches
            for side in (self.jit, self.stitched)
            if side.launches is not None and side.library_launches is not None
        ]
        return (counts[0], counts[1]) if len(counts) == 2 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def row_from(values: Mapping[str, Any]) -> Row:
    """The row that ``to_dict`` made; unknown fields are left out, so that older readers take newer files."""
    known = {f.name for f in fields(Row)}
    given = {name: value for name, value in values.items() if name in known}
    given |= {name: _side(given[name]) for name in ("jit", "stitched") if name in given}
    given["peers"] = {name: _time(value) for name, value in given.get("peers", {}).items()}
    for name in ("size", "notes", "checked_size"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])
    given["stops"] = tuple((int(n), str(op), str(why)) for n, op, why in given.get("stops", ()))
    return Row(**given)


def _side(values: Mapping[str, Any]) -> Side:
    given: dict[str, Any] = {f.name: values.get(f.name) for f in fields(Side)}
    for name in ("time", "without_graphs"):
        given[name] = _time(given[name]) if given[name] is not None else None
    given["kernels"] = tuple(Launched(**kernel) for kernel in given["kernels"] or ())
    return Side(**given)


def _time(values: Mapping[str, Any]) -> Time:
    return Time(values["median"], values["spread"], tuple(values.get("samples", ())), bool(values.get("in_program")))
