"""Memory bandwidth of this machine, measured once and kept in the user's cache folder."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from jax_stitch.util import store
from jax_stitch.util.child import Child, ChildFailed, encode

_ROUNDS = 2
_METHOD = "processor time"
"""Part of the figure's name: what was found in another way is measured anew."""
_BLOCK_RANGE = (16 << 20, 256 << 20)
_LARGEST_HERE = 32 << 20
"""Bytes of a block in this process, where no other can be started."""
_SHARE = 16
"""Such a part of the memory that is free a block may be."""
_TIMEOUT = 60.0
_NUMPY_ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""Without it NumPy's linear algebra makes a thread for each core."""


def memory_bandwidth(model: str, cores: int, cache_bytes: int, memory_bytes: int) -> float:
    """Return the bytes per second that ``cores`` threads read and write together; from the cache folder if measured
    before.

    ``cache_bytes`` is the last-level cache: the two blocks of a copy are as large each, so that little is left there
    from one round to the next, but at most a sixteenth of ``memory_bytes``, which are free. Blocks of twice the size
    gave the same figure on a processor with 36 MB of cache, and took two to four times as long: each of their pages is
    a fault.
    """
    name = f"bandwidth-{store.key(model=model, cores=cores, cache_bytes=cache_bytes, of=_METHOD)[:16]}.json"
    known = _figure(store.read("devices", name))
    if known is not None:
        return known
    low, high = _BLOCK_RANGE
    block = min(max(cache_bytes, low), high, max(memory_bytes // _SHARE, 1 << 20))
    measured = _measured(cores, block)
    store.write("devices", name, json.dumps({"bytes_per_second": measured, "cpu": model, "cores": cores}).encode())
    return measured


def _measured(cores: int, block_bytes: int) -> float:
    """Measure in a process of its own, whose memory is not the user's."""
    request = encode({"cores": cores, "block": block_bytes}, b"")
    try:
        child = Child("jax_stitch.devices.bandwidth_worker", _NUMPY_ALONE)
        reply, _ = child.ask(request, _TIMEOUT)
        child.close()
    except ChildFailed:
        return measure(cores, min(block_bytes, _LARGEST_HERE))
    return float(reply["bytes_per_second"])


def measure(cores: int, block_bytes: int) -> float:
    """Return the best of a few rounds of a copy that all cores share. One byte copied is one read and one written.

    By the processor time of the slowest part: on a machine that is busy with other things a thread waits for its turn,
    and would find a tenth of the bandwidth, which is kept.
    """
    source = np.ones(max(block_bytes // 8, cores), np.float64)
    target = np.empty_like(source)  # Written first below, so that the pages exist before the clock runs.
    parts = [slice(i * source.size // cores, (i + 1) * source.size // cores) for i in range(cores)]

    def copy(part: slice) -> float:
        start = time.thread_time()
        np.copyto(target[part], source[part])
        return time.thread_time() - start

    best = math.inf
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(copy, parts))
        for _ in range(_ROUNDS):
            best = min(best, max(pool.map(copy, parts)))
    return 2 * source.nbytes / best


def _figure(entry: bytes | None) -> float | None:
    """Return the figure that an entry of the cache holds, or None where there is none."""
    return None if entry is None else float(json.loads(entry)["bytes_per_second"])
