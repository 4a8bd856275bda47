"""What JAX Stitch tells the loggers below ``jax_stitch``. Nothing is shown unless somebody asks: ``log_output``.

One line at INFO for each function planned, for each compiled, for each verdict; details at DEBUG. As JAX's own messages
about compilation, those lines are warnings under ``jax_log_compiles``.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from jax_stitch.util.formatting import shortened

if TYPE_CHECKING:
    from jax_stitch.pipeline import Stitched


def level() -> int:
    """Return that of messages about planning and compiling."""
    jax: Any = sys.modules.get("jax")  # A process that plans for another has none; that one raises the level.
    return logging.WARNING if jax is not None and jax.config.jax_log_compiles else logging.INFO


def planned(logger: logging.Logger, stitched: Stitched) -> None:
    """Tell of a plan: its kernels, the boundaries between them, and the seconds that each stage took."""
    graph = stitched.plan.graph
    name = f"{stitched.capture.name}({shortened([str(graph[i].type) for i in graph.parameters])})"
    plans = [stitched.plan]
    for plan in plans:
        plans += plan.children.values()
    boundaries = [(plan.graph[b.node], b.reason) for plan in plans for b in plan.boundaries]
    seconds = ", ".join(f"{stage} {taken:.2f}" for stage, taken in stitched.seconds.items())
    launches = sum(kernel.launches for kernel in stitched.kernels)
    logger.log(
        level(),
        "%s: planned for %s in %.2f s (%s); stitched kernels: %d, their launches in a call: %d, boundaries: %d",
        name,
        stitched.device.name,
        sum(stitched.seconds.values()),
        seconds,
        len(stitched.kernels),
        launches,
        len(boundaries),
    )
    if not logger.isEnabledFor(logging.DEBUG):
        return
    for kernel in stitched.kernels:
        source, scheduled = kernel.source, kernel.scheduled
        ops = sum(len(part.pattern.nodes) for part in scheduled.parts)
        logger.debug(
            "%s: kernel %s: %d operations by %s, %d blocks of %d threads, %d bytes of shared memory",
            name,
            source.name,
            ops,
            "+".join(scheduled.composition),
            source.grid,
            source.block,
            source.shared_bytes,
        )
    for node, reason in boundaries:
        logger.debug("%s: boundary at %s: %s", name, node.name or node.op, reason)
