"""Whole loops as patterns: what they carry, which of them become kernels, in threads or in teams of them."""
