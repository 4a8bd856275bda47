"""Questions about a graph: which elements are read, how a split reaches a value, what comes before what, what fits."""

from jax_stitch.analysis.maps import Guard, Read

__all__ = ["Guard", "Read"]
