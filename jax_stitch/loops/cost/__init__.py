"""Estimates of the time of loops and operations: in our kernels, and in XLA's."""
