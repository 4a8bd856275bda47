"""A Transformer block's training step, ``jax.jit`` beside ``stitch_jit``: ``python -m jax_stitch.demo``."""
