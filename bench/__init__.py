"""Benchmarks and the workloads that tests and benchmarks share; not part of the installed package."""
