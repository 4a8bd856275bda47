"""A session on a GPU, as `bench/gpu.sh` runs it: what is most valuable first, a verdict of each step, one file back.

``session`` and ``wheels`` need nothing but Python: what is missing on a machine is for them to say.
"""
