"""``python -m jax_stitch doctor``: what there is on this machine, what does not work, and what to do about it."""

from jax_stitch.inspect.doctor.examination import examine
from jax_stitch.inspect.doctor.model import Examination, Finding, Section

__all__ = ["Examination", "Finding", "Section", "examine"]
