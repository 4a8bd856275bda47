"""A benchmark's worker without a process: what it is asked for is done here and now.

Processes, what they are given and how they end are tested in ``test_workers.py``; to start one takes seconds.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from bench.worker import Answer


class Here:
    """In the place of ``bench.worker.Worker``."""

    def __init__(self, environment: Mapping[str, str], python: str | None = None) -> None:
        self.environment = environment
        self.cores: set[int] = set()
        """That a process would have had, started with the first question."""

    def ask(self, module: str, request: Mapping[str, Any], limit: float) -> Answer:
        self.cores = self.cores or os.sched_getaffinity(0)
        given = json.loads(json.dumps(dict(request)))
        with pytest.MonkeyPatch.context() as variables:
            for name in self.environment.keys() - {"JAX_PLATFORMS"}:
                variables.setenv(name, self.environment[name])
            values = importlib.import_module(module).answer(given, lambda stage: None)
        return Answer(json.loads(json.dumps(values)))

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *how: object) -> None:
        pass
