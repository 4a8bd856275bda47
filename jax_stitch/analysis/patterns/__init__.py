"""Values that the stages hand on about kernels: patterns, the loops in them, and the plan that they make."""
