"""An environment with jax 0.4.31, the last that compiled small CPU programs whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.4.31"
_PACKAGES = (f"jax=={VERSION}", f"jaxlib=={VERSION}", "numpy<2.3")


def python_of(folder: Path, *packages: str) -> str:
    """The interpreter of an environment in ``folder`` that has ``packages`` too, made if it is not there."""
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        own = shutil.which("python3.11") or sys.executable
        _run(own, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", *_PACKAGES, *packages)
        done.touch()
    return str(python)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:]
        raise SystemExit(
            f"No environment with jax {VERSION}: `{' '.join(command)}` says {' '.join(last)}. "
            "Give the interpreter of one with --old-python, or leave that column out with --no-old."
        ) from error
