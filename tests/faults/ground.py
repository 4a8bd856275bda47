"""Making a process as if it had just been started, as far as this package goes."""

from __future__ import annotations

import os
import tempfile
from unittest import mock

from jax_stitch.backend.compile import build_folder, host, process, toolchain
from jax_stitch.backend.launch import host as launched
from jax_stitch.devices.cpu import measured
from jax_stitch.util import store
from jax_stitch.util.store import entries, eviction

HANDLER = "JAX_STITCH_TEST_HANDLER"
"""A cache folder for the handler alone, whose compilation takes longer than a trial."""


def forget() -> None:
    """What the process knows, forgotten; but for the handler, of which XLA takes one in each process."""
    with mock.patch.dict(os.environ, {store.FOLDER_VARIABLE: os.environ.get(HANDLER, "")}):
        launched._handler()
    tempfile.tempdir = None
    for memory in (host._loaded, launched._registered, build_folder._swept, entries._warned, eviction._since_look):
        memory.clear()
    host.stand_in.cache_clear()  # Else it is known to the handler no more, and its library is closed when it is again.
    toolchain._hanging.clear()
    toolchain.identity.cache_clear()
    measured.cache_clear()
    assert not process._quiet
