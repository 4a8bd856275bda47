"""Rewrites of a graph while it is built, one idea a file."""
