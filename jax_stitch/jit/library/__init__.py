"""The performance library: times measured on this machine's devices, kept between processes.

A time belongs to a kernel (by a hash of its source), to a station (the device with its driver, compilers and options)
and to the turns in which it was measured: beside which others. Only times of the same turns are compared.
"""

from jax_stitch.jit.library.records import Measured, Summary, measuring_alone, read, summary, write
from jax_stitch.jit.library.station import Station, station_of

__all__ = ["Measured", "Station", "Summary", "measuring_alone", "read", "station_of", "summary", "write"]
