"""Programs of this machine, by absolute paths: what lies in the working folder is not run, whatever PATH says."""

from __future__ import annotations

import os
import shutil


def find(name: str) -> str | None:
    """Return the first program of that name in an absolute folder of PATH."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, path)))
