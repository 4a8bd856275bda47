"""What a scheduled kernel takes on a device, by estimate, with every term of it."""

from jax_stitch.latency.constants import Constants, constants_of
from jax_stitch.latency.model import Latency, PhaseLatency, latency

__all__ = ["Constants", "Latency", "PhaseLatency", "constants_of", "latency"]
