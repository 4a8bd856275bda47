"""Cache folders for tests that want one of their own: they begin with what a machine makes once.

That is the handler of CPU kernels, and what the memory was measured to do. Both take a processor longer than the
programs of most tests.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from unittest import mock

from jax_stitch.backend.launch import native
from jax_stitch.devices import bandwidth
from jax_stitch.devices.cpu import unmeasured
from jax_stitch.util import store
from jax_stitch.util.store.eviction import TEMPORARY

_MACHINE = Path(os.environ[store.FOLDER_VARIABLE]) / "machine"
"""Shared by runs and test processes, as the folder around it."""


def seeded(cache: Path) -> Path:
    """The folder, with both in it; the rest is as before."""
    for path in _made():
        target = cache / path.relative_to(_MACHINE)
        for folder in (cache, target.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return cache


@functools.cache
def _made() -> tuple[Path, ...]:
    with mock.patch.dict(os.environ, {store.FOLDER_VARIABLE: str(_MACHINE)}):
        native._compiled()
        cpu = unmeasured()
        bandwidth.memory_bandwidth(cpu.description, cpu.multiprocessors, cpu.l2_bytes, cpu.memory_bytes)
    found = [path for kind in ("kernels", "devices") for path in (_MACHINE / kind).glob("*")]
    return tuple(path for path in found if not path.name.startswith(TEMPORARY))
