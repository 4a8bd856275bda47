"""One process for each worker, of which those with another JAX are forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LIGHT

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def under() -> Iterator[Run]:
    """Run the small program under a case; see ``faulty_jax``."""
    mine = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": LIGHT, "JAX_STITCH_MODE": ""}
    command = [sys.executable, "-W", "ignore", "-m", "tests.other_jax.faulty_jax"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | mine
    ) as server:
        assert server.stdin is not None and server.stdout is not None

        def run(**case: Any) -> dict[str, Any]:
            print(json.dumps(case), file=server.stdin, flush=True)
            return dict(json.loads(server.stdout.readline()))

        yield run
        server.stdin.close()
