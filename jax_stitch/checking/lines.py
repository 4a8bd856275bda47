"""From places in a checked kernel's code to lines of its text."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jax_stitch.util import tools

_TOOLS = ("addr2line", "llvm-addr2line")
_LINE = re.compile(r"(?:^|/)kernel\.cc:(\d+)")


def lines_of(content: bytes, places: Sequence[int]) -> list[int | None]:
    """Return the line of ``kernel.cc`` that each place of a shared object comes from: for a function of the runtime,
    the line that uses it.

    None for all where the machine has neither binutils nor LLVM's tools.
    """
    tool = next(filter(None, map(tools.find, _TOOLS)), None)
    if tool is None or not places:
        return [None] * len(places)
    with tempfile.TemporaryDirectory(prefix="jax-stitch-") as folder:
        path = Path(folder) / "kernel.so"
        path.write_bytes(content)
        # A place is where a call comes back to, which may be the next line's.
        wanted = [hex(max(place - 1, 0)) for place in places]
        command = [tool, "-i", "-a", "-e", str(path), *wanted]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines: list[int | None] = []
    for paragraph in re.split(r"^0x[0-9a-f]+$", text, flags=re.MULTILINE)[1:]:
        match = next((m for line in paragraph.splitlines() if (m := _LINE.search(line))), None)
        lines.append(int(match[1]) if match else None)
    return lines if len(lines) == len(places) else [None] * len(places)
