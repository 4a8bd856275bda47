"""The child process that measures this machine's memory bandwidth: its arrays are as large as the last-level cache, and
are not to be part of what the user's process has had in memory.
"""

from __future__ import annotations

from typing import Any

from jax_stitch.devices.bandwidth import measure
from jax_stitch.util.child import Message, serve


def answer(header: dict[str, Any], payload: bytes) -> Message:
    """Return the bytes per second for a number of cores and a size of blocks."""
    del payload
    return {"bytes_per_second": measure(header["cores"], header["block"])}, b""


if __name__ == "__main__":
    serve(answer)
