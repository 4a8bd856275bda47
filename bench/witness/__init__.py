"""Two editions of the package beside each other: every workload's kernels for a GPU, and times on this CPU."""
