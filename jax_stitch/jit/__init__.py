"""A stitched function as a JAX operation: how it is traced, transformed, lowered, or left as it is."""
