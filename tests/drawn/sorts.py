"""Sorts, and updates of places: of constant ones, and in loops of any."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.drawn.generator import Generator
from tests.drawn.loops import LONGEST, write
from tests.drawn.values import FLOATS, Value


def sort(g: Generator, v: Value) -> None:
    """Along one dimension: a value by itself, where its elements were, or others beside it."""
    rng = g.rng
    if not v.shape or v.dtype == "pred":
        return
    axis = rng.randrange(len(v.shape))
    if not v.exact or rng.random() < 0.4:  # Sorted values are as near to each other as those that were not.
        g.add(f"lax.sort({v.name}, dimension={axis}, is_stable={rng.random() < 0.5})", v)
        return
    w = g.partner(v)
    beside = [p for p in g.values if p.shape == v.shape]
    if w is None or not beside or rng.random() < 0.3:
        g.add(f"jnp.argsort({v.name}, {axis}, stable=True).astype(D['s32'])", v, dtype="s32")
        return
    p = rng.choice(beside)
    keys = 1 if not w.exact else rng.choice((1, 2))
    names = (v.name, w.name, p.name)
    text = f"lax.sort(({', '.join(names)}), dimension={axis}, is_stable=True, num_keys={keys})"
    g.add(f"{text}[{2}]", p)


def place(g: Generator, v: Value) -> None:
    """Some rows of a value added to, multiplied or replaced at places that are known."""
    rng = g.rng
    if not v.shape or v.dtype == "pred":
        return
    n = v.shape[0]
    places = rng.sample(range(n), min(n, rng.choice((1, 2, 3))))
    how = rng.choice(("set", "add", "min", "max"))
    u = g.scalar(v.dtype, rng.choice((1, 2, 3)))
    more = {"most": v.most + 3, "error": 0.0 if v.exact else v.error + 2.0 ** -FLOATS[v.dtype] * (v.most + 3)}
    g.add(f"{v.name}.at[np.asarray({places})].{how}({u})", v, **(more if v.dtype in FLOATS else {}))


def scattering(g: Generator, v: Value) -> None:
    """A loop that updates places of what it carries, which its data or other numbers name, some of them outside."""
    rng = g.rng
    axes = [d for d, n in enumerate(v.shape) if n <= LONGEST]
    if len(v.shape) < 2 or not axes or v.most > 50 or v.dtype == "pred":
        return
    axis = rng.choice(axes)
    shape = (*v.shape[:axis], *v.shape[axis + 1 :])
    count = rng.choice((1, 2, 5))
    places = g.late_input("s32", (count,))
    lines = [f"j = {places.name}"]
    if v.dtype[0] in "su" and rng.random() < 0.5:
        lines = [f"j = ({places.name} + x.reshape(-1)[0].astype(D['s32']) % 7) % {shape[0] + 1}"]
    first = Value("c", v.dtype, shape)
    unit = 2.0 ** -FLOATS.get(v.dtype, 24)
    how = rng.choice(("add", "add", "max", "set") if count == 1 or v.dtype not in FLOATS else ("add", "max"))
    how = "add" if how == "set" and count > 1 else how
    rows = f"x[:1] if {count} > x.shape[0] else x[:{count}]"
    half = g.scalar(v.dtype, 0.5)
    text = f"(c * {half} if {v.dtype in FLOATS} else c).at[j].{how}({rows}, mode='drop')"
    most = 2 * count * v.most + 1e-9
    error = 2 * count * (v.error + 4 * unit * most)
    last = replace(first, most=most, fraction=0, error=error) if v.dtype in FLOATS else first
    if last.most > 1000 or last.error > 0.05 * max(last.most, 1e-9) or math.prod(shape) == 0:
        return
    write(g, v, axis, lines, text, last, replace(v, name="x", shape=shape))
