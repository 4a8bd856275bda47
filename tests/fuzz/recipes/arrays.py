"""Calls that move elements: slices, pads, reshapes, types, sorts."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.fuzz import values
from tests.fuzz.draft import Draft, dtype_name, kind_of
from tests.fuzz.guesses import indices, key, mask, matrix, new_shape, similar
from tests.fuzz.program import Function

Recipe = Callable[[Draft, str], str | tuple[str, tuple[Function, ...]] | None]
"""The text of a call about a value; None where the value does not suit."""


def some_axis(d: Draft, v: str) -> int | None:
    rank = len(d.shape(v))
    return d.rng.randrange(rank) if rank else None


def slice_bounds(d: Draft, n: int) -> tuple[int, int, int]:
    """Start, end and stride inside a dimension: mostly all of it, or one off."""
    rng = d.rng
    start = rng.choice((0, 0, 0, 1, n // 2, rng.randint(0, n)))
    start = min(start, n)
    end = rng.choice((n, n, n - 1, rng.randint(start, n)))
    return start, max(end, start), rng.choice((1, 1, 1, 2, 3))


def slice_(d: Draft, v: str) -> str:
    bounds = [slice_bounds(d, n) for n in d.shape(v)]
    starts, ends, strides = ([b[k] for b in bounds] for k in range(3))
    return f"lax.slice({v}, {starts}, {ends}, {strides if d.rng.random() < 0.7 else None})"


def slice_in_dim(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None:
        return None
    start, end, stride = slice_bounds(d, d.shape(v)[axis])
    return f"lax.slice_in_dim({v}, {start}, {end}, {stride}, {axis})"


def subscript(d: Draft, v: str) -> str | None:
    """NumPy's own notation: slices either way, new axes, whole arrays of indices."""
    rng = d.rng
    if not d.shape(v):
        return None
    items = []
    for n in d.shape(v):
        start, end, stride = slice_bounds(d, n)
        kind = rng.random()
        if kind < 0.35:
            items.append(":")
        elif kind < 0.5:
            items.append("::-1")
        elif kind < 0.7:
            items.append(f"{start}:{end}:{stride}")
        elif kind < 0.8:
            items.append(indices(d, v))
        elif kind < 0.9:
            items.append(str(rng.randrange(-n, n)) if n else ":")
        else:
            items.append("None, :")
    if rng.random() < 0.25:
        how = rng.choice(("set", "add", "mul", "min", "max", "get"))
        value = "" if how == "get" else d.number(dtype_name(d.aval(v)))
        mode = rng.choice(("", ", mode='drop'", ", mode='clip'", ", mode='fill'"))
        return f"{v}.at[{', '.join(items)}].{how}({value}{mode if value else ''})"
    return f"{v}[{', '.join(items)}]"


def pad(d: Draft, v: str) -> str:
    rng = d.rng
    config = [
        (rng.choice((0, 0, 1, 2, -1, 3)), rng.choice((0, 0, 1, -1, 5)), rng.choice((0, 0, 0, 1, 2))) for _ in d.shape(v)
    ]
    name = dtype_name(d.aval(v))
    return f"lax.pad({v}, np.array({d.number(name)}, {values.dtype_text(name)}), {config})"


def concatenate(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None:
        return None
    shape = list(d.shape(v))
    parts = [v]
    for _ in range(d.rng.randint(1, 3)):
        other = list(shape)
        other[axis] = d.rng.choice((shape[axis], 1, 3))
        parts.append(d.like(v, shape=other))
    d.rng.shuffle(parts)
    return f"lax.concatenate([{', '.join(parts)}], {axis})"


def broadcast_in_dim(d: Draft, v: str) -> str:
    rng = d.rng
    shape, places = [], []
    for n in d.shape(v):
        while rng.random() < 0.3 and len(shape) < 5:
            shape.append(rng.choice((1, 2, 3, 5)))
        places.append(len(shape))
        shape.append(n if n != 1 or rng.random() < 0.4 else rng.choice((1, 4, 7)))
    if rng.random() < 0.5:
        shape.append(rng.choice((1, 2, 31)))
    return f"lax.broadcast_in_dim({v}, {tuple(shape)}, {tuple(places)})"


def reshape(d: Draft, v: str) -> str:
    rank = len(d.shape(v))
    order = f", {d.rng.sample(range(rank), rank)}" if d.rng.random() < 0.2 else ""
    return f"lax.reshape({v}, {new_shape(d, v)}{order})"


def squeeze(d: Draft, v: str) -> str:
    return f"lax.squeeze({v}, {[k for k, n in enumerate(d.shape(v)) if n == 1 and d.rng.random() < 0.7]})"


def collapse(d: Draft, v: str) -> str | None:
    rank = len(d.shape(v))
    if not rank:
        return None
    start = d.rng.randrange(rank)
    return f"lax.collapse({v}, {start}, {d.rng.randint(start + 1, rank)})"


def split(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None:
        return None
    n = d.shape(v)[axis]
    first = d.rng.randint(0, n)
    return f"lax.split({v}, {[first, n - first]}, {axis})"


def iota(d: Draft, v: str) -> str:
    return f"lax.iota({d.dtype(('int', 'float'))}, {d.rng.choice((1, 2, 31, 32, 33, 128))})"


def broadcasted_iota(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    return None if axis is None else f"lax.broadcasted_iota({d.dtype(('int', 'float'))}, {d.shape(v)}, {axis})"


def full(d: Draft, v: str) -> str:
    name = dtype_name(d.aval(v))
    return f"lax.full({d.shape(v)}, {d.number(name)}, {values.dtype_text(name)})"


def bitcast(d: Draft, v: str) -> str:
    size = d.aval(v).dtype.itemsize
    found = [
        n for n in (*values.FLOATS, *values.INTEGERS) if values.SPACE["np"] and _size(n) in (size, size // 2, 2 * size)
    ]
    found = [n for n in found if n not in values.WIDE or d.shared.x64]
    return f"lax.bitcast_convert_type({v}, {values.dtype_text(d.rng.choice(found or ['uint32']))})"


def _size(name: str) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) // 8


def sort(d: Draft, v: str) -> str | None:
    """Several operands, some of them keys, along any axis."""
    axis = some_axis(d, v)
    if axis is None:
        return None
    count = d.rng.choice((1, 1, 2, 2, 3))
    operands = [v] + [d.like(v, dtype=_any_dtype(d)) for _ in range(count - 1)]
    stable = d.rng.random() < 0.8
    return (
        f"lax.sort([{', '.join(operands)}], dimension={axis}, is_stable={stable}, num_keys={d.rng.randint(1, count)})"
    )


def _any_dtype(d: Draft) -> str:
    return values.draw_dtype(d.rng, d.shared.x64)


def sort_key_val(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None:
        return None
    return f"lax.sort_key_val({v}, {d.like(v, dtype=_any_dtype(d))}, dimension={axis})"


def top_k(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None:
        return None
    n = d.shape(v)[axis]
    return f"lax.top_k({v}, {d.rng.choice((1, 2, n, d.rng.randint(0, n)))}, axis={axis})"


def approximate(name: str) -> Recipe:
    def recipe(d: Draft, v: str) -> str | None:
        axis = some_axis(d, v)
        n = 0 if axis is None else d.shape(v)[axis]
        if n == 0 or kind_of(d.aval(v)) != "float":
            return None
        return f"lax.{name}({v}, {d.rng.randint(1, n)}, reduction_dimension={axis}, recall_target=1.0)"

    return recipe


def clamp(d: Draft, v: str) -> str:
    low, high = d.like(v), d.like(v)
    if d.rng.random() < 0.5:
        low, high = d.like(v, shape=()), d.like(v, shape=())
    return f"lax.clamp({low}, {v}, {high})"


def select_n(d: Draft, v: str) -> str:
    if d.rng.random() < 0.5:
        return f"lax.select_n({mask(d, v)}, {v}, {d.like(v)})"
    which = f"jnp.clip({d.like(v, dtype='int32')}, 0, 2)"
    return f"lax.select_n({which}, {v}, {d.like(v)}, {d.like(v)})"


def rng_bits(d: Draft, v: str) -> str:
    shape = values.draw_shape(d.rng, d.shared.sizes)
    words = [d.rng.randrange(1 << 32) for _ in range(2)]
    dtype = d.rng.choice(("uint8", "uint16", "uint32"))
    algorithm = "algorithm=lax.RandomAlgorithm.RNG_THREE_FRY"
    return f"lax.rng_bit_generator(np.array({words}, np.uint32), {shape}, {values.dtype_text(dtype)}, {algorithm})"


def rng_uniform(d: Draft, v: str) -> str:
    """Of an empty range: what XLA draws otherwise is its own affair."""
    number = d.like(v, shape=())
    return f"lax.rng_uniform({number}, {number}, {d.shape(v)})"


def interp(d: Draft, v: str) -> str:
    n = d.rng.choice((2, 5, 31, 100))
    table = d.input("float32", (n,))
    return f"jnp.interp({v}, jnp.sort({d.input('float32', (n,))}), {table})"


def random_sample(name: str, *parameters: str) -> Recipe:
    """A draw of a shape, its parameters small positive numbers or arrays of them."""

    def recipe(d: Draft, v: str) -> str:
        shape = values.draw_shape(d.rng, d.shared.sizes)
        given = [d.rng.choice(("0.5", "1.5", "3.0", f"jnp.full({shape}, 2.5)")) for _ in parameters]
        return f"jax.random.{name}({', '.join([key(d, v), *given])}, shape={shape})"

    return recipe


def householder(d: Draft, v: str) -> str:
    square = matrix(d, v)
    return f"lax.linalg.householder_product({square}, jnp.ones(jnp.shape({square})[:-1], {square}.dtype))"


def resize(d: Draft, v: str) -> str:
    shape = tuple(d.rng.choice((1, 2, 3, 8, n)) for n in d.shape(v))
    return f"jax.image.resize({v}, {shape}, {d.rng.choice(('nearest', 'linear', 'cubic', 'lanczos3'))!r})"


def like_with(text: str) -> Recipe:
    return lambda d, v: text.format(x=v, y=similar(d, v), y1=d.like(v), z=d.like(v), m=mask(d, v), i=indices(d, v))


RECIPES: dict[str, Recipe] = {
    "lax.slice": slice_,
    "lax.slice_in_dim": slice_in_dim,
    "jnp.asarray": subscript,
    "jnp.array": subscript,
    "lax.pad": pad,
    "lax.concatenate": concatenate,
    "lax.broadcast_in_dim": broadcast_in_dim,
    "lax.reshape": reshape,
    "lax.squeeze": squeeze,
    "lax.collapse": collapse,
    "lax.split": split,
    "lax.iota": iota,
    "lax.broadcasted_iota": broadcasted_iota,
    "lax.full": full,
    "lax.bitcast_convert_type": bitcast,
    "lax.sort": sort,
    "lax.sort_key_val": sort_key_val,
    "lax.top_k": top_k,
    "lax.approx_max_k": approximate("approx_max_k"),
    "lax.approx_min_k": approximate("approx_min_k"),
    "lax.clamp": clamp,
    "lax.select_n": select_n,
    "lax.select": like_with("lax.select({m}, {x}, {y1})"),
    "lax.rng_bit_generator": rng_bits,
    "lax.rng_uniform": rng_uniform,
    "jnp.interp": interp,
    "lax.linalg.householder_product": householder,
    "lax.stack": lambda d, v: f"lax.stack([{v}, {d.like(v)}, {d.like(v)}], {d.rng.randint(0, len(d.shape(v)))})",
    "lax.tile": lambda d, v: f"lax.tile({v}, {[d.rng.choice((1, 1, 2, 3)) for _ in d.shape(v)]})",
    "lax.integer_pow": lambda d, v: f"lax.integer_pow({v}, {d.rng.choice((-2, -1, 0, 1, 2, 3, 5))})",
    "lax.optimization_barrier": lambda d, v: f"lax.optimization_barrier(({v}, {similar(d, v)}))",
    "lax.broadcast_like": lambda d, v: f"lax.broadcast_like({v}, {d.like(v, shape=(3, *d.shape(v)))})",
    "lax.fft": lambda d, v: (
        f"lax.fft(({v}).astype(jnp.complex64), {d.rng.choice(('fft', 'ifft'))!r}, {d.shape(v)[-1:]})"
        if d.shape(v)
        else None
    ),
    "lax.random_gamma_grad": lambda d, v: f"lax.random_gamma_grad(jnp.abs({v}) + 0.5, {d.like(v)})",
    "lax.complex": lambda d, v: f"lax.complex({v}.astype(jnp.float32), {d.like(v, dtype='float32')})",
    "lax.real": lambda d, v: f"lax.real({v}.astype(jnp.complex64))",
    "lax.imag": lambda d, v: f"lax.imag(lax.complex({d.like(v, dtype='float32')}, {d.like(v, dtype='float32')}))",
    "lax.index_in_dim": lambda d, v: (
        f"lax.index_in_dim({v}, {d.rng.choice((0, -1, 1))}, {some_axis(d, v)}, {d.rng.random() < 0.5})"
        if d.shape(v)
        else None
    ),
    "jnp.block": like_with("jnp.block([[{x}, {y1}], [{z}, {x}]])"),
    "jnp.einsum": lambda d, v: einsum(d, v),
    "jnp.histogram": like_with("jnp.histogram({x}, bins=5, range=(-3.0, 3.0))"),
    "jnp.searchsorted": like_with("jnp.searchsorted(jnp.sort({x}.ravel()), {y1})"),
    "jnp.digitize": like_with("jnp.digitize({x}, jnp.array([-1.0, 0.0, 2.0]))"),
    "jnp.ldexp": like_with("jnp.ldexp({x}, {i})"),
    "jax.image.resize": resize,
    "jax.random.normal": random_sample("normal"),
    "jax.random.uniform": random_sample("uniform"),
    "jax.random.gamma": random_sample("gamma", "a"),
    "jax.random.poisson": random_sample("poisson", "lam"),
    "jax.random.beta": random_sample("beta", "a", "b"),
    "jax.random.bits": random_sample("bits"),
    "jax.random.exponential": random_sample("exponential"),
    "jax.random.t": random_sample("t", "df"),
    "jax.random.gumbel": random_sample("gumbel"),
    "jax.random.binomial": lambda d, v: (
        f"jax.random.binomial({key(d, v)}, {d.rng.choice((1, 5, 20))}, 0.3, shape=({d.rng.choice((1, 3))},))"
    ),
    "jax.random.key_data": lambda d, v: f"jax.random.key_data({key(d, v)})",
    "jax.random.split": lambda d, v: f"jax.random.split({key(d, v)}, {d.rng.choice((2, 3, (2, 2)))})",
    "jax.random.fold_in": lambda d, v: f"jax.random.fold_in({key(d, v)}, {d.rng.randrange(9)})",
    "jax.random.clone": lambda d, v: f"jax.random.clone({key(d, v)})",
    "jax.random.wrap_key_data": lambda d, v: f"jax.random.wrap_key_data(jax.random.key_data({key(d, v)}))",
    "jax.random.key": lambda d, v: f"jax.random.key({d.rng.randrange(99)})",
}


def einsum(d: Draft, v: str) -> str | None:
    """A random contraction of a value with another that shares some of its dimensions."""
    rng = d.rng
    shape = d.shape(v)
    if not 1 <= len(shape) <= 3 or math.prod(shape) > 1200:
        return None
    letters = "abc"[: len(shape)]
    shared = [k for k in range(len(shape)) if rng.random() < 0.7]
    extra = rng.choice((1, 2, 3, 5))
    other = "".join(letters[k] for k in shared) + "d"
    dims = tuple(shape[k] for k in shared) + (extra,)
    order = rng.sample(range(len(dims)), len(dims))
    result = [c for c in letters + "d" if rng.random() < 0.6]
    rng.shuffle(result)
    right = "".join(other[k] for k in order)
    return f"jnp.einsum('{letters},{right}->{''.join(result)}', {v}, {d.like(v, shape=tuple(dims[k] for k in order))})"
