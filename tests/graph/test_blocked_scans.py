"""Scans that XLA cuts into blocks are one scan again, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
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
    "logarithms": (lambda x: jax.lax.cumlogsumexp(x, 1), (4, 1000)),
    "logarithms backward": (lambda x: jax.lax.cumlogsumexp(x, 0, reverse=True), (100, 3)),
}
ROUNDED = """HloModule rounded

step {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = bf16[] convert(a)
  d = bf16[] convert(b)
  s = bf16[] OPERATION(c, d)
  ROOT t = f32[] convert(s)
}

ENTRY e {
  x = bf16[3,80] parameter(0)
  first = bf16[] constant(FIRST)
  blocks = bf16[3,5,16] reshape(x)
  wide = f32[3,5,16] convert(blocks)
  start = f32[] convert(first)
  scans = f32[3,5,16] reduce-window(wide, start), window={size=1x1x16 pad=0_0x0_0x15_0}, to_apply=step
  ends = bf16[3,5,16] convert(scans)
  last = bf16[3,5,1] slice(ends), slice={[0:3], [0:5], [15:16]}
  totals = bf16[3,5] reshape(last)
  widetotals = f32[3,5] convert(totals)
  sums = f32[3,6] reduce-window(widetotals, start), window={size=1x5 pad=0_0x5_0}, to_apply=step
  narrowsums = bf16[3,6] convert(sums)
  before = bf16[3,5] slice(narrowsums), slice={[0:3], [0:5]}
  spread = bf16[3,5,16] broadcast(before), dimensions={0,1}
  all = bf16[3,5,16] OPERATION(ends, spread)
  ROOT y = bf16[3,80] reshape(all)
}
"""
"""A scan of bf16 as XLA's compiler for GPUs writes it: a window of f32, each step of which is rounded."""
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


@pytest.mark.parametrize(
    ("operation", "first", "numpy"), [("add", "0", np.cumsum), ("maximum", "-inf", np.maximum.accumulate)]
)
def test_rounded_blocks_are_one_scan_again(operation: str, first: str, numpy: Callable[..., Any]) -> None:
    """Catches converts of a combiner that keep a scan of bf16 in blocks."""
    text = ROUNDED.replace("OPERATION", operation).replace("FIRST", first)
    x = np.random.default_rng(0).integers(-3, 4, (3, 80)).astype(ml_dtypes.bfloat16)
    graph = graphs.build(hlo_parser.parse(text))
    (scan,) = [n for n in graph.nodes if n.op not in MOVES]
    assert scan.op == "reduce-window" and scan.tensor.dtype == "bf16"
    assert [n.op for n in scan.graphs["to_apply"].nodes] == ["parameter", "parameter", operation]
    found = stitch_hlo(text, strict=True)(x)
    np.testing.assert_array_equal(np.asarray(found, np.float64), numpy(x.astype(np.float64), axis=1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s = bf16[] OPERATION(c, d)\n  ROOT t = f32[] convert(s)", "ROOT t = f32[] OPERATION(a, b)"),  # no rounding
        ("first = bf16[] constant(FIRST)", "first = f32[] constant(0.1)"),  # bf16 has no such number
        ("x = bf16[3,80] parameter(0)", "x = f32[3,80] parameter(0)"),  # what is scanned is no bf16
    ],
)
def test_windows_of_wide_values_stay_wide(old: str, new: str) -> None:
    """Catches a window that loses precision: of wide values, without rounding in its steps, or from such a start."""
    text = ROUNDED.replace("OPERATION", "add").replace(old.replace("OPERATION", "add"), new).replace("OPERATION", "add")
    if "f32[3,80] parameter" in text:
        text = text.replace("blocks = bf16[3,5,16] reshape(x)", "blocks = f32[3,5,16] reshape(x)")
        text = text.replace("wide = f32[3,5,16] convert(blocks)", "wide = f32[3,5,16] negate(blocks)")
    text = text.replace("FIRST", "0")
    if "constant(0.1)" in text:
        text = text.replace("start = f32[] convert(first)", "start = f32[] copy(first)")
    graph = graphs.build(hlo_parser.parse(text))
    windows = [n for n in graph.nodes if n.op == "reduce-window"]
    assert "f32" in {n.tensor.dtype for n in windows}


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


def _added_logarithms(shape: str, a: str, b: str, name: str) -> str:
    """Return the text of ``logaddexp`` of two values of a shape."""
    one = f"{name}.one = f32[{shape}] "
    one += "constant(1)" if not shape else f"broadcast({name}.c), dimensions={{}}\n  {name}.c = f32[] constant(1)"
    return "\n  ".join(
        [
            *reversed(one.split("\n  ")),
            f"{name}.difference = f32[{shape}] subtract({a}, {b})",
            f"{name}.size = f32[{shape}] abs({name}.difference)",
            f"{name}.down = f32[{shape}] negate({name}.size)",
            f"{name}.part = f32[{shape}] exponential({name}.down)",
            f"{name}.sum = f32[{shape}] add({name}.one, {name}.part)",
            f"{name}.log = f32[{shape}] log({name}.sum)",
            f"{name}.most = f32[{shape}] maximum({a}, {b})",
            f"{name}.all = f32[{shape}] add({name}.most, {name}.log)",
            f"{name}.nan = pred[{shape}] compare({name}.difference, {name}.difference), direction=NE",
            f"{name} = f32[{shape}] select({name}.nan, {name}.most, {name}.all)",
        ]
    )


LOGARITHMS = (
    BLOCKS.replace("ROOT s = f32[] add(a, b)", _added_logarithms("", "a", "b", "ROOT s").replace("ROOT s.", "s."))
    .replace("(ROOT s", "(s")
    .replace("all = f32[3,7,16] add(inside, wide)", _added_logarithms("3,7,16", "inside", "wide", "all"))
    .replace("constant(0)", "constant(-inf)")
)
OTHERS = {
    "another constant in the combination": ("all.c = f32[] constant(1)", "all.c = f32[] constant(2)"),
    "another operation in the combination": ("all.size = f32[3,7,16] abs", "all.size = f32[3,7,16] negate"),
    "another value in the combination": ("maximum(inside, wide)", "maximum(inside, inside)"),
    "the first and second of a select in turn": ("(all.nan, all.most, all.all)", "(all.nan, all.all, all.most)"),
    "another start": ("constant(-inf)", "constant(-80)"),
    "no neutral start": ("s.size = f32[] abs", "s.size = f32[] negate"),
}


def test_several_operations_combine() -> None:
    """Catches a combiner that is looked for by its one operation: XLA writes all of them where two blocks meet."""
    assert [n.op for n in graphs.build(hlo_parser.parse(LOGARITHMS)).nodes if n.op not in MOVES] == ["reduce-window"]
    x = np.random.default_rng(1).standard_normal((3, 112)).astype(np.float32)
    want = np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(stitch_hlo(LOGARITHMS, strict=True)(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", OTHERS)
def test_several_other_operations_do_not(change: str) -> None:
    old, new = OTHERS[change]
    assert old in LOGARITHMS
    text = LOGARITHMS.replace(old, new)
    assert sum(n.op == "reduce-window" for n in graphs.build(hlo_parser.parse(text)).nodes) == 2
