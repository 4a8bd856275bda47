"""Small programs on a CPU: what users of filters, solvers, robots and small nets run, on one core and in the caches.

``programs.PROGRAMS`` are plain JAX that version 0.4.31 takes as well, and import nothing else but NumPy.
"""
