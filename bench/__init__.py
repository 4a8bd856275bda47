"""Benchmarks and the workloads that tests and benchmarks share; not part of the installed package.

They measure stitched programs, so functions are stitched at their first call, unless one says otherwise.
"""

import os

os.environ["JAX_STITCH_MODE"] = "now"
