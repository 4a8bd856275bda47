"""Where and with what a benchmark ran."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "numpy", "flax", "optax", "torch", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc")
ROOT = Path(__file__).resolve().parent.parent


def about(device: str) -> dict[str, Any]:
    """Date, commit, versions, and the machine: its CPU, and for a run on a GPU that and its driver."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "compiler": _first_line(
            os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++", "--version"
        ),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "device": device,
    }
    if device == "cuda":
        asked = _first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        name, _, driver = (asked or "").partition(", ")
        found |= {"gpu": name, "driver": driver}
    return found


def commit() -> str | None:
    """The checkout's commit, with a plus sign where files of the library or the benchmarks differ from it."""
    head = _first_line("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    changed = _first_line(
        "git", "-C", str(ROOT), "status", "--porcelain", "-uno", "--", "jax_stitch", "hlo_parser", "bench"
    )
    return f"{head}+" if changed else head


def cpu() -> str:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(*command: str) -> str | None:
    """What a command prints first; None where it is not there or fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = run.stdout.strip().splitlines()
    return lines[0] if lines else None
