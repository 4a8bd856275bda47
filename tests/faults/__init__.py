"""Faults planted into the system while functions are stitched, at their first call."""

import os

os.environ["JAX_STITCH_MODE"] = "now"
