"""Rewrites of loops before they become kernels, one idea a file."""
