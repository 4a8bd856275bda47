"""SentryWard, a verifier of PTX that is no part of this project: asked in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Verdict = Literal["proved", "one block", "proved if", "in part", "refused", "unsupported", "too long"]
"""``one block``: for its threads, not for those of two. ``proved if``: for one way through each branch that depends on
data, and ``ITERATIONS`` of each such loop. ``in part``: that all threads meet at each barrier, perhaps on one such way;
what they do between barriers is not decided."""
ITERATIONS = 2
_DATA = ("control_predicate_not_static", "control_parameter_value_missing")
"""What it says of branches that depend on data: it follows none by itself."""
_REFUSED = ("potential_race", "not_wellsynced", "invalid_lifecycle")
_TOO_LONG = ("timeout", "memory_budget_exceeded", "analysis_budget_exceeded", "allocation_failed")
MEMORY_MIB = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched."""

    grid: int
    block: int
    shared_bytes: int = 0
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """What SentryWard says of a kernel."""

    verdict: Verdict
    reason: str = ""
    """Its result and the first diagnostics, where it is not proved."""
    synchronized: bool = False
    """Whether it is proved at least that all threads meet at each barrier."""


def available() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("sentryward") is not None


def prove(ptx: str, entry: str, launch: Launch, seconds: float) -> Proof:
    """Whether a kernel is free of data races and deadlocks in every schedule of its threads, for this launch. Its
    parameters are pointers to buffers that do not overlap. Where that is not decided, less is asked."""
    found = _asked(ptx, entry, launch, seconds, {})
    if found.verdict != "unsupported":
        return found
    other: dict[Verdict, Proof] = {}
    if launch.grid > launch.cluster:
        other["one block"] = _asked(ptx, entry, replace(launch, grid=launch.cluster), seconds, {})
    if any(code in found.reason for code in _DATA):
        assumed: dict[str, object] = {"representative_branches": True, "bounded_computation_loops": True}
        more: dict[str, object] = {"assumptions": assumed, "data_branch_loop_iterations": ITERATIONS}
        other["proved if"] = _asked(ptx, entry, launch, seconds, more)
    for verdict, again in other.items():
        if again.verdict == "refused":
            return again
        if again.verdict == "proved":
            return Proof(verdict, found.reason)
    meets = any(p.synchronized for p in (found, *other.values()))
    return Proof("in part", found.reason) if meets else found


def _asked(ptx: str, entry: str, launch: Launch, seconds: float, more: dict[str, object]) -> Proof:
    dims = {"grid_dim": [launch.grid, 1, 1], "block_dim": [launch.block, 1, 1], "cluster_dim": [launch.cluster, 1, 1]}
    asked: dict[str, object] = {"schema": "spverify.kernel-input/v1", "entry": entry}
    asked |= {"launch": {**dims, "dynamic_shared_bytes": launch.shared_bytes}} | more
    with tempfile.TemporaryDirectory() as name:
        text, config = Path(name, "kernel.ptx"), Path(name, "input.json")
        text.write_text(ptx, encoding="utf-8")
        config.write_text(json.dumps(asked), encoding="utf-8")
        command = [sys.executable, "-m", "sentryward", str(text), "--input", str(config)]
        command += ["--timeout", f"{seconds:g}", "--memory-limit-mib", str(MEMORY_MIB)]
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 20)
            found = json.loads(said.stdout)
        except subprocess.TimeoutExpired:
            return Proof("too long", "it did not end")
        except json.JSONDecodeError:
            return Proof("unsupported", f"no report: {said.stderr.strip()[-200:]}")
    return _proof(found)


def _proof(found: dict[str, object]) -> Proof:
    result, checks = str(found.get("result")), found.get("checks")
    assert isinstance(checks, dict)
    passed = checks.get("memory") == checks.get("synchronization") == "passed"
    if result == "race_free" and passed:
        return Proof("proved")
    diagnostics = found.get("diagnostics")
    codes = [str(d.get("code")) for d in diagnostics if isinstance(d, dict)] if isinstance(diagnostics, list) else []
    reason = ": ".join([result, *dict.fromkeys(codes[:2])])
    if result in _REFUSED:
        return Proof("refused", reason)
    meets = checks.get("synchronization") == "passed"
    return Proof("too long" if result in _TOO_LONG else "unsupported", reason, meets)
