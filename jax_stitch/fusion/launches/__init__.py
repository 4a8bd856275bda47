"""From the patterns that a planner has chosen to kernels: packed into launches, composed in phases."""
