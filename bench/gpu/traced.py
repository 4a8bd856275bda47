"""What the device did in some calls: each kernel's launches and seconds, by JAX's own profiler (CUPTI)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from bench.rows import Launched


def traced(call: Callable[[], Any], calls: int) -> list[Launched]:
    """The kernels of ``calls`` calls, the longest first; empty where no GPU is attached. Call it once before: what is
    compiled meanwhile is seen too."""
    jax.block_until_ready(call())
    with tempfile.TemporaryDirectory(prefix="bench-trace-", ignore_cleanup_errors=True) as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)
        for _ in range(calls):
            jax.block_until_ready(call())
        jax.profiler.stop_trace()
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        found: dict[str, tuple[int, float]] = {}
        for plane in (p for file in files for p in jax.profiler.ProfileData.from_file(str(file)).planes):
            if "GPU" not in plane.name or not plane.name.startswith("/device:"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):  # The others say the same once more, by module and operation.
                    continue
                for event in line.events:
                    launches, seconds = found.get(event.name, (0, 0.0))
                    found[event.name] = launches + 1, seconds + event.duration_ns * 1e-9
    rows = [Launched(name, n / calls, seconds / calls) for name, (n, seconds) in found.items()]
    return sorted(rows, key=lambda row: -row.seconds)
