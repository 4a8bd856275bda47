"""Calls that take a small function of two elements: reductions, windows, scans."""

from __future__ import annotations

import jax.numpy as jnp

from tests.fuzz import values
from tests.fuzz.draft import Draft, dtype_name, kind_of
from tests.fuzz.guesses import axes, one_axis
from tests.fuzz.recipes.arrays import Recipe, some_axis

MONOIDS = {
    "lax.add": "0",
    "lax.mul": "1",
    "lax.max": "lowest",
    "lax.min": "highest",
    "lax.bitwise_and": "-1",
    "lax.bitwise_or": "0",
    "lax.bitwise_xor": "0",
}


def monoid(d: Draft, v: str) -> tuple[str, str]:
    """A combiner that suits a value's type, and its neutral value, or another one."""
    rng = d.rng
    kind, name = kind_of(d.aval(v)), dtype_name(d.aval(v))
    dtype = values.dtype_text(name)
    if kind == "bool":
        combiner = rng.choice(("lax.bitwise_and", "lax.bitwise_or", "lax.max", "lax.min"))
        return combiner, f"np.array({combiner in ('lax.bitwise_and', 'lax.min')})"
    combiner = rng.choice(list(MONOIDS)[: 7 if kind == "int" else 4])
    neutral = MONOIDS[combiner]
    if neutral in ("lowest", "highest"):
        edge = "min" if neutral == "lowest" else "max"
        infinite = f"np.array({'-' if edge == 'min' else ''}np.inf, {dtype})"
        text = f"np.array(jnp.iinfo({dtype}).{edge}, {dtype})" if kind == "int" else infinite
    else:
        text = f"np.array({neutral}).astype({dtype})"
    if rng.random() < 0.5:
        text = f"np.array({d.number(name)}, {dtype})"
    return combiner, text


def reduce_(d: Draft, v: str) -> str | None:
    """One array by a combiner, or two at once by a function of pairs."""
    chosen = axes(d, v)
    if chosen == "()" and d.shape(v) and d.rng.random() < 0.9:
        chosen = f"({d.rng.randrange(len(d.shape(v)))},)"
    if d.rng.random() < 0.7:
        combiner, neutral = monoid(d, v)
        return f"lax.reduce({v}, {neutral}, {combiner}, {chosen})"
    other = d.like(v)
    name = values.dtype_text(dtype_name(d.aval(v)))
    pair = d.rng.choice(
        (
            "lambda a, b: (lax.add(a[0], b[0]), lax.max(a[1], b[1]))",
            "lambda a, b: (lax.select(a[0] >= b[0], a[0], b[0]), lax.select(a[0] >= b[0], a[1], b[1]))",
            "lambda a, b: (lax.add(a[0], b[0]), lax.add(a[1], b[1]))",
        )
    )
    starts = ["0", "0"]
    if "select" not in pair and d.rng.random() < 0.4:
        starts = [d.number(dtype_name(d.aval(v))) for _ in starts]
    return f"lax.reduce(({v}, {other}), ({', '.join(f'np.array({s}, {name})' for s in starts)}), {pair}, {chosen})"


def window(d: Draft, n: int) -> tuple[int, int, tuple[int, int], int, int]:
    """Size, stride, padding and both dilations along a dimension of n."""
    rng = d.rng
    size = rng.choice((1, 1, 2, 3, 5, max(n, 1)))
    padding = rng.choice(((0, 0), (0, 0), (1, 1), (size - 1, 0), (0, size - 1), (2, 0)))
    return size, rng.choice((1, 1, 2, 3)), padding, rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 2))


def reduce_window(d: Draft, v: str) -> str | None:
    shape = d.shape(v)
    if not shape:
        return None
    combiner, neutral = monoid(d, v)
    drawn = [window(d, n) for n in shape]
    size, stride, padding, base, dilation = ([w[k] for w in drawn] for k in range(5))
    return f"lax.reduce_window({v}, {neutral}, {combiner}, {size}, {stride}, {padding}, {base}, {dilation})"


def named_reduce(name: str) -> Recipe:
    return lambda d, v: f"lax.{name}({v}, {axes(d, v)})"


def cumulative(name: str) -> Recipe:
    def recipe(d: Draft, v: str) -> str | None:
        axis = some_axis(d, v)
        return None if axis is None else f"lax.{name}({v}, axis={axis}, reverse={d.rng.random() < 0.4})"

    return recipe


def arg(name: str) -> Recipe:
    def recipe(d: Draft, v: str) -> str | None:
        axis = some_axis(d, v)
        if axis is None:
            return None
        dtype = d.dtype(("int",))
        # Places that their type cannot hold come round again: which of two NaNs is first then depends on the order.
        fits = d.shape(v)[axis] <= int(jnp.iinfo(dtype.removeprefix("jnp.")).max)
        return f"lax.{name}({v}, {axis}, {dtype if fits else 'jnp.int32'})"

    return recipe


def associative_scan(d: Draft, v: str) -> str | None:
    rng = d.rng
    axis = some_axis(d, v)
    if axis is None:
        return None
    ending = f"reverse={rng.random() < 0.4}, axis={axis})"
    if rng.random() < 0.6:
        combiner, _ = monoid(d, v)
        return f"lax.associative_scan({combiner}, {v}, {ending}"
    pair = "lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])"
    return f"lax.associative_scan({pair}, ({v}, {d.like(v)}), {ending}"


def composite(d: Draft, v: str) -> str:
    return f"lax.composite(lambda a: jnp.cumsum(a.ravel()) * 2, 'some.name')({v})"


def segment(name: str) -> Recipe:
    def recipe(d: Draft, v: str) -> str | None:
        shape = d.shape(v)
        if not shape:
            return None
        count = d.rng.choice((1, 3, 8, 33))
        ids = f"np.random.default_rng({d.rng.randrange(99)}).integers(-1, {count + 1}, {shape[:1]}).astype(np.int32)"
        return f"jax.ops.{name}({v}, {d.input('int32', shape[:1], ids)}, num_segments={count})"

    return recipe


def ufunc_method(d: Draft, name: str, v: str) -> str | None:
    """``jnp.add.reduce`` and its like."""
    method = name.rpartition(".")[2]
    if method in ("reduce", "accumulate"):
        return f"{name}({v}, axis={one_axis(d, v)})"
    if method == "outer":
        return f"{name}({v}, {d.like(v)})"
    n = (d.shape(v) or (0,))[0]
    if n == 0:
        return None
    picked = [d.rng.randrange(n) for _ in range(3)]
    if method == "reduceat":
        return f"{name}({v}, jnp.array({sorted(picked)}))"
    if method == "at":
        row = d.like(v, shape=(3, *d.shape(v)[1:]))
        more = f", {row}" if d.rng.random() < 0.8 else ""
        return f"{name}({v}, jnp.array({picked}){more}, inplace=False)"
    return None


RECIPES: dict[str, Recipe] = {
    "lax.reduce": reduce_,
    "lax.reduce_window": reduce_window,
    "lax.associative_scan": associative_scan,
    "lax.composite": composite,
    **{f"lax.{n}": named_reduce(n) for n in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")},
    **{f"lax.{n}": named_reduce(n) for n in ("reduce_and", "reduce_or", "reduce_xor")},
    **{f"lax.{n}": cumulative(n) for n in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")},
    **{f"lax.{n}": arg(n) for n in ("argmax", "argmin")},
    **{f"jax.ops.{n}": segment(n) for n in ("segment_sum", "segment_prod", "segment_max", "segment_min")},
}
