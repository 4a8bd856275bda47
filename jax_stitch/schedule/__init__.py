"""Pattern -> ScheduledKernel: threads, stages, and the place of every kept value."""

from jax_stitch.schedule.model import Part, ScheduledKernel, Split
from jax_stitch.schedule.registers import registers
from jax_stitch.schedule.schedule import alternatives, schedule

__all__ = ["Part", "ScheduledKernel", "Split", "alternatives", "registers", "schedule"]
