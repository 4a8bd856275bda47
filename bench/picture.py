"""``python -m bench.picture``: README's picture of programs before and after stitching, planned for an H200."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp

from bench.about import ROOT
from jax_stitch import stitch_jit
from jax_stitch.demo.cases import cart_pole, layer_norm, training_step
from jax_stitch.demo.picture import Shown, picture

FILE = ROOT / "docs" / "pictures" / "before_after.svg"
HEAD = "What each kernel moves through the memory of an H200 (planned, not measured)"


def gradient(x: jax.Array, scale: jax.Array, bias: jax.Array, g: jax.Array) -> Any:
    """LayerNorm's gradients."""
    return jax.vjp(layer_norm, x, scale, bias)[1](g)


def drawn() -> str:
    """The picture."""
    rows, row = jax.ShapeDtypeStruct((8192, 1024), jnp.float32), jax.ShapeDtypeStruct((1024,), jnp.float32)
    programs = {
        "The gradient of LayerNorm [8192 x 1024]": (gradient, (rows, row, row, rows)),
        "Cart-pole: a loop of 1,000 steps, 2,048 environments, random actions": cart_pole(2048, 1000),
        "A Transformer's training step with AdamW [8 x 128 x 256]": training_step(8, 128, 256),
    }
    shown = [
        Shown(title, stitch_jit(function).plan(*args, device="h200")) for title, (function, args) in programs.items()
    ]
    return picture(shown, HEAD)


if __name__ == "__main__":
    FILE.write_text(drawn(), encoding="utf-8")
    sys.exit(0)
