"""Scans that XLA cuts into blocks are one scan again, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch import stitch_hlo
from tests.hlo_files.programs import after

SCANS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "rows": (lambda x: jnp.cumsum(x, 1), (8, 256)),
    "columns": (lambda x: jnp.cumsum(x, 0), (256, 8)),
    "three levels": (lambda x: jnp.cumsum(x), (5000,)),
    "odd": (lambda x: jnp.cumsum(x, 1), (3, 100)),
    "backward": (lambda x: jax.lax.cumsum(x, 1, reverse=True), (8, 1000)),
    "maximum": (lambda x: jax.lax.cummax(x, 1), (4, 1000)),
    "product": (lambda x: jnp.cumprod(1 + x / 100, 1), (4, 100)),
    "middle": (lambda x: jnp.cumsum(x, 1), (3, 200, 5)),
}
MOVES = {"parameter", "constant", "transpose", "reshape"}


@pytest.mark.parametrize("name", SCANS)
def test_blocks_are_one_scan_again(name: str) -> None:
    """Catches a level that stays, blocks joined along another dimension, and the wrong end of a backward scan."""
    fun, shape = SCANS[name]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    text = after(fun, x)
    assert text.count("reduce-window(") > 1
    graph = graphs.build(hlo_parser.parse(text))
    others = [n for n in graph.nodes if n.op not in MOVES | {"add", "multiply", "divide", "broadcast"}]
    (scan,) = others
    assert scan.op == "reduce-window"
    size = scan.tensor.size
    assert max(w.size for w in scan.attributes["window"].dims) in shape and size == x.size
    np.testing.assert_allclose(stitch_hlo(text, strict=True)(x), jax.jit(fun)(x), rtol=2e-4, atol=2e-4)


BLOCKS = """HloModule blocks

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[3,112] parameter(0)
  zero = f32[] constant(0)
  blocks = f32[3,7,16] reshape(x)
  inside = f32[3,7,16] reduce-window(blocks, zero), window={size=1x1x16 pad=0_0x0_0x15_0}, to_apply=add
  ends = f32[3,7,1] slice(inside), slice={[0:3], [0:7], [15:16]}
  totals = f32[3,7] reshape(ends)
  sums = f32[3,8] reduce-window(totals, zero), window={size=1x7 pad=0_0x7_0}, to_apply=add
  before = f32[3,7] slice(sums), slice={[0:3], [0:7]}
  wide = f32[3,7,16] broadcast(before), dimensions={0,1}
  all = f32[3,7,16] add(inside, wide)
  ROOT y = f32[3,112] reshape(all)
}
"""

CHANGES = {
    "another place of each block": ("[15:16]", "[14:15]"),
    "the sums with each block's own": ("slice={[0:3], [0:7]}", "slice={[0:3], [1:8]}"),
    "another operation between": ("add(inside, wide)", "multiply(inside, wide)"),
    "another start": ("constant(0)", "constant(1)"),
    "windows over a part": ("size=1x1x16 pad=0_0x0_0x15_0", "size=1x1x8 pad=0_0x0_0x7_0"),
    "the sums from behind": ("size=1x7 pad=0_0x7_0", "size=1x7 pad=0_0x0_7"),
}


def test_the_text_by_itself_is_a_scan() -> None:
    assert [n.op for n in graphs.build(hlo_parser.parse(BLOCKS)).nodes if n.op not in MOVES] == ["reduce-window"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_only_looks_like_it_stays(change: str) -> None:
    """Each of these computes something else than a scan."""
    old, new = CHANGES[change]
    assert old in BLOCKS
    text = BLOCKS.replace(old, new)
    graph = graphs.build(hlo_parser.parse(text))
    assert sum(n.op == "reduce-window" for n in graph.nodes) == 2
    x = np.random.default_rng(1).standard_normal((3, 112)).astype(np.float32)
    function = stitch_hlo(text)
    np.testing.assert_allclose(function(x), function.plain(x), rtol=1e-4, atol=1e-4)
