"""What the latency-evaluator takes for granted about a device: from the data files, or as measured on the machine."""

from __future__ import annotations

import functools
import json
import math
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict

from jax_stitch import devices
from jax_stitch.devices import Device
from jax_stitch.util import store
from jax_stitch.util.formatting import format_bytes, format_seconds


class Constants(Struct, frozen=True):
    """Times are in seconds; cycles are of the device's clock, for the instruction of one warp (on a CPU one vector)."""

    source: str
    """Where the figures come from."""
    launch: float
    """What one more kernel takes where the next one waits for it, besides its buffers."""
    buffer: float
    """What each buffer of a launch takes besides."""
    start: float
    """What it takes besides to have other threads of a CPU begin, or all blocks of a GPU wait for each other."""
    issue: Mapping[str, float]
    """How long an instruction of each class keeps a multiprocessor (a core) from the next warp's."""
    wait: Mapping[str, float]
    """How long a warp waits for an instruction's result, those under way at a time shared out; nothing on a CPU, which
    goes on out of order.
    """
    curve: tuple[tuple[int, float], ...]
    """B(V) of the 2019 paper: (bytes moved by a launch, bytes per second), ascending."""
    overlap: float
    """What of the shorter of computing and moving bytes is not hidden behind the longer: 0 is all of it hidden."""
    level2: float = math.inf
    """Bytes per second that all multiprocessors of a GPU have from level-2 cache; a CPU's are in ``curve``."""

    def __str__(self) -> str:
        cycles = ", ".join(f"{name} {n:.3g}" for name, n in sorted(self.issue.items(), key=lambda item: item[1]))
        rates = ", ".join(f"{format_bytes(size)} {format_bytes(rate)}/s" for size, rate in self.curve)
        return "\n".join(
            [
                f"source: {self.source}",
                f"launch {format_seconds(self.launch)}, and {format_seconds(self.buffer)} for each buffer; "
                f"threads or barriers {format_seconds(self.start)}",
                f"cycles of a warp's instruction: {cycles}",
                f"bandwidth: {rates}",
                f"overlap: {1 - self.overlap:.0%} of the shorter of computing and moving bytes is hidden",
            ]
        )

    def bandwidth(self, volume: float) -> float:
        """Return B(V), bytes per second, at ``volume`` bytes: between the points of the curve by logarithms, and that
        of the nearest point outside.
        """
        sizes = [size for size, _ in self.curve]
        k = bisect_right(sizes, volume)
        if k in (0, len(sizes)):
            return self.curve[max(k - 1, 0)][1]
        (low, slow), (high, fast) = self.curve[k - 1 : k + 1]
        share = math.log(volume / low) / math.log(high / low)
        return math.exp(math.log(slow) * (1 - share) + math.log(fast) * share)


_FORMAT = 4
"""One more with every class of instructions that is added, and where another time is measured under a name: what was
measured before is measured again."""


def constants_of(device: Device) -> Constants:
    """Return the constants measured on this machine for a device (``jax_stitch.latency.measure``), or else those of the
    data files.
    """
    if device.attached:
        known = store.read("devices", entry(device))
        if known is not None:
            return from_json(known)
    return assumed(device)


def keep(device: Device, constants: Constants) -> None:
    """Store constants measured on an attached device, for all later processes of the user."""
    store.write("devices", entry(device), to_json(constants))


def entry(device: Device) -> str:
    """Return the name in the cache of what was measured on a device: another model or number of cores has another."""
    parts = store.key(device=device.name, model=device.description, cores=device.multiprocessors, format=_FORMAT)
    return f"latency-{parts[:16]}.json"


def to_json(constants: Constants) -> bytes:
    values = asdict(constants) | {"issue": dict(constants.issue), "wait": dict(constants.wait)}
    return json.dumps(values, indent=1).encode()


def from_json(content: bytes) -> Constants:
    values = json.loads(content)
    curve = tuple((int(size), float(rate)) for size, rate in values.pop("curve"))
    issue, wait = (MappingProxyType(values.pop(name)) for name in ("issue", "wait"))
    return Constants(**values, issue=issue, wait=wait, curve=curve)


_POINTS = tuple(1 << k for k in range(12, 33, 2))
"""Bytes at which a curve that is a formula is sampled."""


@functools.lru_cache(maxsize=64)
def assumed(device: Device) -> Constants:
    """Return the constants of the data files."""
    text = (resources.files(devices.__name__) / "specs" / f"latency_{device.target.name}.toml").read_text(
        encoding="utf-8"
    )
    values = tomllib.loads(text)
    issue, wait = dict(values["issue"]), dict(values.get("wait", {}))
    clock = device.clock_ghz * 1e9
    if device.target.is_host:
        # From a core's own caches by the cycle; from more than the last one holds at the rate measured of the memory.
        cached = device.multiprocessors * clock
        points = [(int(size), rate * cached) for size, rate in values["cached"] if size < device.l2_bytes / 2]
        curve = (*points, (2 * device.l2_bytes, device.memory_bandwidth))
    else:
        # Of a launch's bytes the first are there after the memory's latency, the rest at its full rate.
        first = values["memory_wait"] / clock
        rate = values["reached"] * device.memory_bandwidth
        curve = tuple((size, size / (first + size / rate)) for size in _POINTS)
        issue["arithmetic"] *= values["lanes"] / device.fp32_lanes
    level2 = math.inf if device.target.is_host else values["cached"] * device.multiprocessors * clock
    return Constants(
        values["source"],
        values["launch"],
        values["buffer"],
        values["start"],
        MappingProxyType(issue),
        MappingProxyType(wait),
        curve,
        values["overlap"],
        level2,
    )
