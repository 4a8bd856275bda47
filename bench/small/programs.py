"""All small programs by name."""

from __future__ import annotations

from bench.small import nets, robots, scans, solvers
from bench.small.made import Program

PROGRAMS: dict[str, Program] = {
    program.name: program for module in (scans, solvers, robots, nets) for program in module.PROGRAMS
}
