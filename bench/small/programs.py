"""All small programs by name."""

from __future__ import annotations

from bench.small import algebra, everyday, layers, nets, packages, robots, scans, solvers, steps, writes
from bench.small.made import Program

USUAL: tuple[str, ...] = tuple(p.name for module in (scans, solvers, robots, nets) for p in module.PROGRAMS)
"""Those that are timed where none is named."""

ALGEBRA: tuple[str, ...] = tuple(p.name for p in algebra.PROGRAMS)
"""The programs of small linear algebra and of complex numbers."""

STEPS: tuple[str, ...] = tuple(p.name for p in steps.PROGRAMS)
"""The programs of loops that sort, add up, draw numbers and exchange elements."""

LAYERS: tuple[str, ...] = tuple(p.name for p in layers.PROGRAMS)
"""The programs of products with vectors and small batches."""

_FAMILIES = (
    scans.PROGRAMS,
    scans.GROWTH.values(),
    solvers.PROGRAMS,
    robots.PROGRAMS,
    nets.PROGRAMS,
    nets.RECURRENT,
    writes.PROGRAMS,
    everyday.PROGRAMS,
    packages.PROGRAMS,
    algebra.PROGRAMS,
    steps.PROGRAMS,
    layers.PROGRAMS,
)

PROGRAMS: dict[str, Program] = {program.name: program for programs in _FAMILIES for program in programs}

_ALSO_INSIDE = "kalman kalman_gradient neuron markov_gradient neural_ode_gradient gru_32 softmax_first adafactor lamb"

INSIDE: tuple[str, ...] = (
    *(p.name for module in (writes, everyday) for p in module.PROGRAMS),
    *_ALSO_INSIDE.split(),
)
"""Programs that are timed as parts of another program."""
