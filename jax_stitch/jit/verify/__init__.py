"""A second opinion at run time: each new kernel runs once beside XLA's own computation of its operations."""
