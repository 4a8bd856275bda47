"""Loops in teams of threads: their sweeps, how threads share them out, what is cached on the way."""
