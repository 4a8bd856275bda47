"""Where JAX Stitch keeps what it would be a waste to make again: compiled kernels, measured device figures."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "JAX_STITCH_CACHE_DIR"


def cache_dir(kind: str) -> Path:
    """The folder for one ``kind`` of cached files ("kernels", "devices", ...), made if missing, for its owner only.

    It lies in ``$JAX_STITCH_CACHE_DIR``, else in the user's cache folder. Where that cannot be written, a temporary
    folder takes its place until the process ends, with one warning.
    """
    wanted = os.environ.get(ENVIRONMENT_VARIABLE) or platformdirs.user_cache_dir("jax-stitch", appauthor=False)
    root = Path(wanted).expanduser()
    try:
        return _writable(root / kind)
    except OSError as error:
        return _writable(_fallback(root, str(error)) / kind)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file whole: whoever reads it, even after a crash, sees the old content or the new, never a part."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _writable(folder: Path) -> Path:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    # Permission bits say little on network and read-only file systems: try.
    with tempfile.NamedTemporaryFile(dir=folder):
        return folder


@functools.cache
def _fallback(root: Path, reason: str) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix="jax-stitch-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    warnings.warn(
        f"JAX Stitch cannot write its cache folder {root} ({reason}). Kernels are compiled anew by each process. "
        f"Point {ENVIRONMENT_VARIABLE} to a folder that can be written.",
        stacklevel=3,
    )
    return temporary
