"""Kernels for the CPU in ``make test``: compiled lightly, as whether they are right is asked of them once.

A module or a ``conftest.py`` that imports ``light`` has it in all of its tests. Not for what measures kernels: the
times are kept, and do not tell the flags. ``make test-all`` compiles with the flags that users have.
"""

from __future__ import annotations

import pytest

from jax_stitch.backend.compile import host
from tests.fusion.forced import LIGHT_FLAGS
from tests.some import some


def make_light(monkeypatch: pytest.MonkeyPatch) -> None:
    if some(1, of=0):
        monkeypatch.setattr(host, "FLAGS", LIGHT_FLAGS)


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    make_light(monkeypatch)
