"""Where the cache lies, and what is kept there."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "JAX_STITCH_CACHE_DIR"
KINDS = ("programs", "kernels", "captures", "devices", "verdicts", "given_up")
"""What is kept, each in a folder of its own: rebuilt functions, compiled kernels, XLA's programs for GPUs that are only
described, measured figures of this machine, which functions are better stitched, and which kernels took a compiler too
long.
Whatever else lies beside these folders is none of ours."""
LIBRARY = "library"
"""The folder of measured times, which took longest to make and are small: they stay until all is cleared."""


def folder() -> Path:
    """Return the cache folder, made or not: ``$JAX_STITCH_CACHE_DIR``, else one in the user's cache folder; for a user
    who has no home, one among the temporary files."""
    try:
        return Path(os.environ.get(FOLDER_VARIABLE) or _of_user()).expanduser()
    except RuntimeError:  # No home: HOME is not set and the user has no name, as in containers.
        return Path(os.environ.get("TMPDIR") or "/tmp") / f"jax-stitch-{os.geteuid()}"


def _of_user() -> str:
    import platformdirs  # Only here: where the folder is given, the package need not be installed.

    return platformdirs.user_cache_dir("jax-stitch", appauthor=False)
