"""The steps of a session on a GPU, in order; ``python -m bench.gpu.steps`` runs them. `bench/gpu.sh` calls it."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.gpu.session import RESERVE, Session, Step

BUDGETS = {"cuda": 540.0, "cpu": 440.0}
QUICK = 180.0
"""Seconds in all."""
QUICK_STEPS = 6
"""How many of the steps a quick session has: the first."""
SHORT = 8.0
"""Seconds of the steps that are no shorter in a short session."""
CASES = {"cuda": 110.0, "cpu": 60.0}
"""Seconds for each composition and each workload, several at a time."""


def steps(device: str, found: Path, budget: float, *, quick: bool = False) -> list[Step]:
    """All steps; their limits are shares of the budget. Results lie in ``found``."""
    every = _steps(device, found)
    if quick:
        every = every[:QUICK_STEPS]
    # Those that are short anyway keep their time: of less, they would not be begun.
    kept = sum(step.limit for step in every if step.limit <= SHORT)
    kept = kept if 2 * kept < budget - RESERVE else 0.0
    scale = (budget - RESERVE - kept) / sum(step.limit for step in every if not kept or step.limit > SHORT)
    return [step if kept and step.limit <= SHORT else replace(step, limit=step.limit * scale) for step in every]


def _steps(device: str, found: Path) -> list[Step]:
    python = sys.executable
    jobs = str(max(1, min(12, (os.cpu_count() or 1) * 3 // 4)))
    small = () if device == "cuda" else ("--small",)
    files = {name: str(found / f"{name}.json") for name in ("micro", "loops", "models", "optimizers")}

    def module(name: str, seconds: float, *arguments: str, called: str = "") -> Step:
        return Step(called or name.rpartition(".")[2], seconds, (python, "-m", name, *arguments))

    def suite(name: str, seconds: float) -> Step:
        chosen = ("run", "--suite", name, "--device", device, "--no-cold", "--no-peers", *small, "--seconds", "0.3")
        limits = ("--no-ungraphed", "--limit", "150", "--jobs", jobs, "--budget", "{seconds}", "--json", files[name])
        return module("bench", seconds, *chosen, *limits, called=name)

    own = ("--limit", f"{CASES[device]:g}", "--budget", "{seconds}", "--jobs")
    here = Step("machine", 8, ("nvidia-smi",), needs="nvidia-smi")
    # Each array apart, so that it is noticed what lies beyond.
    sanitized = (
        "env",
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform",
        "compute-sanitizer",
        *("--tool", "memcheck", "--error-exitcode", "9", python, "-m", "bench.sanitized"),
    )
    return [
        here if device == "cuda" else Step("machine", 8, ("lscpu",), needs="lscpu"),
        module("bench.gpu.compositions", 30, "--only", "tiny", "--limit", "30", called="one tiny kernel"),
        module("bench.gpu.compositions", 30, *own, jobs, called="compositions"),
        module("bench.gpu.correctness", 150, *own, jobs, called="correctness"),
        suite("micro", 45),
        module("bench.gpu.copies", 8, *files.values(), called="share of a copy"),
        *([module("bench.gpu.launchers", 30, *own, jobs, called="launchers")] if device == "cuda" else []),
        suite("loops", 80),
        suite("models", 150),
        suite("optimizers", 60),
        module("bench.gpu.copies", 8, *files.values(), called="share of a copy, all"),
        module("bench", 30, "device", "--device", device, "--json", str(found / "constants.json"), called="constants"),
        module(
            "bench",
            35,
            *("evaluators", "--device", device, "--suite", "micro", "--seconds", "0.02"),
            *("--sizes", "usual" if device == "cuda" else "small", "--budget", "{seconds}", "--out", str(found)),
            called="evaluator",
        ),
        module(
            "bench",
            35,
            *("autotune", "--device", device, "--suite", "micro", "--seconds", "0.3", "--processes", "1"),
            *("--limit", "30", "--budget", "{seconds}", "--json", str(found / "autotune.json"), *small),
            called="autotune",
        ),
        *([Step("memory", 30, sanitized, needs="compute-sanitizer")] if device == "cuda" else []),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the session; see ``bench.gpu.session.exit_status``."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.steps", description=__doc__)
    parser.add_argument("--device", choices=tuple(BUDGETS), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the first steps alone")
    parser.add_argument("--budget", type=float, help="seconds in all")
    parser.add_argument("--spent", type=float, default=0.0, help="seconds of it that are gone")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what the steps write")
    parser.add_argument("--out", type=Path, required=True, help="the one file")
    options = parser.parse_args(argv)
    budget = options.budget or (QUICK if options.quick else BUDGETS[options.device])
    options.work.mkdir(parents=True, exist_ok=True)
    chosen = steps(options.device, options.work, budget, quick=options.quick)
    session = Session(chosen, budget, options.work, options.out, time.monotonic() - options.spent)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = session.run(_about(options.device, budget))
    except KeyboardInterrupt:
        status = 1
    print("\n".join(map(str, session.outcomes)))
    print(f"everything is in {options.out}; exit status {status}")
    return status


def _about(device: str, budget: float) -> dict[str, Any]:
    from importlib import metadata

    versions = {}
    plugins = "jax-cuda13-plugin", "jax-cuda12-plugin"
    for name in ("jax", "jaxlib", *plugins, "nvidia-cuda-nvrtc", "cuda-bindings", "cupy-cuda13x", "cupy-cuda12x"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    python = platform.python_version()
    return {"device": device, "budget": budget, "started": started, "python": python, "packages": versions}


if __name__ == "__main__":
    sys.exit(main())
