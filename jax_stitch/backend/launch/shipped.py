"""The handler that a wheel for Linux holds already compiled, so that no machine has to compile it at its first use.

It is taken only where it was made of the very texts that lie here (the handler's, and jaxlib's header), for this kind
of processor, and where nobody but the user and root can have changed it. Elsewhere it is compiled, as from a clone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

_logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "handler.cc"
_OTHERS = 0o022
"""Permission of others to write."""


def include_folders() -> tuple[Path, Path]:
    """Return where the handler's headers lie: here, and in jaxlib."""
    return FOLDER, Path(jax.ffi.include_dir())


def sources() -> Iterator[Path]:
    """Yield the texts that the handler is made of."""
    own, xla = include_folders()
    yield from (SOURCE, *sorted(own.glob("*.h")), xla / "xla" / "ffi" / "api" / "c_api.h")


def name() -> str:
    """Return the file's name: it says what it was made of, and for which machines. As ``.so`` Python would import
    it.
    """
    made_of = hashlib.sha256()
    for path in sources():
        made_of.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return f"handler-{sys.platform}-{platform.machine()}-{made_of.hexdigest()[:32]}.compiled"


def content(folder: Path = FOLDER) -> bytes | None:
    """Return the compiled handler that came with the package; None where it has none, another one, or others can write
    it.

    What was checked is what is read: the file is opened once, and no link is followed.
    """
    path = folder / name()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        for status, what in ((os.fstat(descriptor), path), (os.stat(folder), folder)):
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS:
                _logger.debug("%s is another user's, or others can write to it: the handler is compiled", what)
                return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
