"""From HLO to compiled kernels and where they are launched, by all stages, without JAX: here, or in a process that does
nothing else."""
