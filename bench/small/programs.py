"""All small programs by name."""

from __future__ import annotations

from bench.small import nets, packages, robots, scans, solvers
from bench.small.made import Program

USUAL: tuple[str, ...] = tuple(p.name for module in (scans, solvers, robots, nets) for p in module.PROGRAMS)
"""Those that are timed where none is named."""

_FAMILIES = (
    scans.PROGRAMS,
    scans.GROWTH.values(),
    solvers.PROGRAMS,
    robots.PROGRAMS,
    nets.PROGRAMS,
    nets.RECURRENT,
    packages.PROGRAMS,
)

PROGRAMS: dict[str, Program] = {program.name: program for programs in _FAMILIES for program in programs}
