"""Random programs from JAX's own surface, run plain and stitched: `python -m tests.fuzz`."""
