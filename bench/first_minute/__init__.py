"""What a new user meets who puts ``stitch_jit`` where ``jax.jit`` was: first results, work beside them, verdicts."""
