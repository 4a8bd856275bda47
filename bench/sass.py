"""The machine code of a kernel (SASS), as NVIDIA's disassembler reads it: no GPU is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from jax_stitch.util.suggestion import UsageError

_ACCESS = re.compile(r"\b(?:LDG|STG)\.E(?:\.(?!128|64|[US]?16|[US]?8)\w+)*(?:\.(128|64|[US]?16|[US]?8))?\b")


def disassembler() -> str:
    """The command of ``nvdisasm``: that of the wheel ``nvidia-cuda-nvdisasm``, else the one on the path.

    Raises ``UsageError`` where there is none.
    """
    folders = [Path(folder) / "nvidia" for folder in sys.path if folder]
    found = [program for folder in folders for program in sorted(folder.glob("*/bin/nvdisasm"))]
    command = str(found[0]) if found else shutil.which("nvdisasm")
    if command is None:
        raise UsageError("SASS is read by nvdisasm, which is not here: pip install nvidia-cuda-nvdisasm")
    return command


def disassembled(cubin: bytes) -> str:
    """The text of a kernel's machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([disassembler(), file.name], capture_output=True, text=True, check=True)
    return done.stdout


def widths_of(sass: str) -> dict[int, int]:
    """The accesses of global memory in a SASS text, by the bits that a thread moves: widest first."""
    found = Counter(int(re.sub(r"\D", "", width)) if width else 32 for width in _ACCESS.findall(sass))
    return {width: found[width] for width in (128, 64, 32, 16, 8) if found[width]}
