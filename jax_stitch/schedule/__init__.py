"""Pattern -> ScheduledKernel: threads, passes, and where every cached value lives."""

from jax_stitch.schedule.model import Part, ScheduledKernel, Split
from jax_stitch.schedule.registers import registers
from jax_stitch.schedule.schedule import alternatives, schedule

__all__ = ["Part", "ScheduledKernel", "Split", "alternatives", "registers", "schedule"]
