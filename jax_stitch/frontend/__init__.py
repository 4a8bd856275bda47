"""From a function or a file to optimized HLO, and from a graph back to a function that JAX traces."""
