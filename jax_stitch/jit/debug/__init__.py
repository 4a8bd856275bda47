"""Where JAX Stitch itself is wrong: a report that shows it without the user's code, and a way to make that small.

``JAX_STITCH_DEBUG=1`` writes a report of each internal error; ``python -m jax_stitch minimise FOLDER`` makes its
program as small as it can be while it fails in the same way.
"""
