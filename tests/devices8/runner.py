"""Runs every ``case_*`` function of some modules and prints a JSON object: its traceback by name, or null if it passed.

In a process of its own, since the number of devices is settled when JAX starts.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from jax_stitch import StitchWarning
from jax_stitch.backend.compile import host

ROOT = Path(__file__).parents[2]
MARK = "outcomes: "


def slow(case: Callable[[], None]) -> Callable[[], None]:
    """A case that is left out where tests are to be fast."""
    case.__dict__["slow"] = True
    return case


def names(module: str, is_slow: bool) -> list[str]:
    """The cases of a module that are slow, or that are not."""
    cases = vars(importlib.import_module(module))
    return [name for name in cases if name.startswith("case_") and hasattr(cases[name], "slow") == is_slow]


def outcomes(is_slow: bool, *modules: str) -> dict[str, str | None]:
    """Runs the cases of some modules that are slow, or that are not, on eight host devices."""
    # Machine code for eight devices need not be good: a third of the time was LLVM's.
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
    command = [sys.executable, "-m", "tests.devices8.runner", *modules, *["slow"] * is_slow]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith(MARK)]
    assert run.returncode == 0 and lines, run.stderr[-3000:]
    found: dict[str, str | None] = json.loads(lines[-1].removeprefix(MARK))
    return found


def main(modules: Sequence[str], is_slow: bool) -> None:
    warnings.filterwarnings("error", ".*internal error of JAX Stitch", StitchWarning)
    host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # Nor of kernels.
    found: dict[str, str | None] = {}
    for module in modules:
        imported = importlib.import_module(module)
        for name in names(module, is_slow):
            try:
                getattr(imported, name)()
            except Exception:
                found[f"{module}.{name}"] = traceback.format_exc()
            else:
                found[f"{module}.{name}"] = None
    print(MARK + json.dumps(found))


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word != "slow"], "slow" in sys.argv)
