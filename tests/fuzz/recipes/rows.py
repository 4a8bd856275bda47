"""Loops that write rows into an array that they carry, counters and places of narrow types."""

from __future__ import annotations

import jax

from tests.fuzz.draft import Draft, dtype_name
from tests.fuzz.recipes.composed import Composed, Grow
from tests.fuzz.recipes.loops import next_carry
from tests.fuzz.values import dtype_text

COUNTERS = ("int32", "int32", "int8", "uint8", "int16", "uint16")
"""The types of counters and places. Those of 8 bits wrap within the loops below."""

STARTS = {"int8": (0, 100, 120, -128), "uint8": (0, 250), "int16": (0, 32760), "uint16": (0, 65530), "int32": (0, -3)}
"""Where counters start, some just before they wrap."""


MODES = ("clip", "wrap", "fill")
"""Modes for indices out of bounds."""


def place(d: Draft, n: int, length: int) -> str:
    """One of ``n`` places in step ``i`` of a loop whose state is ``h``; at times outside."""
    rng = d.rng
    make = f"np.random.default_rng({rng.randrange(999)}).integers(0, {n}, ({length},))"
    forms = [
        "i",
        f"i % {n}",
        f"i.astype(jnp.int32) % {n}",
        f"i + {rng.choice((1, 2, n - 1))}",
        f"{n - 1} - i",
        f"(i * {rng.choice((3, 7))}) % {n}",
        f"i // {rng.choice((2, 3))}",
        "jnp.argmax(h)",
    ]
    if rng.random() < 0.3:
        dtype = rng.choice([t for t in COUNTERS if n < 128 or t.endswith(("16", "32"))])
        given = d.input(dtype, (length,), f"{make}.astype({dtype_text(dtype)})")
        return f"jnp.asarray({given})[i % {length}]" if length < 128 else f"jnp.asarray({given})[i]"
    return rng.choice(forms)


def written(d: Draft, n: int, length: int, rank: int, row: str) -> str:
    """The carried array ``b`` after a row is written into it."""
    at = place(d, n, length)
    rest = ", 0" * (rank - 1)
    return d.rng.choice(
        (
            f"b.at[{at}].set({row})",
            f"b.at[{at}].set({row}, mode='drop')",
            f"b.at[{at}].add({row})",
            f"lax.dynamic_update_slice(b, {row}[None], ({at}{rest},))",
            f"lax.dynamic_update_slice_in_dim(b, {row}[None], {at}, 0)",
            f"lax.dynamic_update_index_in_dim(b, {row}, {at}, 0)",
            f"lax.dynamic_update_index_in_dim(b, {row}, {at}, 0)",
        )
    )


def loop(kind: str, dtype: str, start: int, length: int, state: str, step: str) -> str:
    """``state`` after so many steps of ``step``, a function of the number of the step, ``i``, and the state."""
    narrow = dtype_text(dtype)
    if kind == "fori":
        return f"lax.fori_loop({start}, {start + length}, lambda i, c: {step}(i.astype({narrow}), *c), {state})"
    if kind == "scan":
        numbers = f"lax.iota({narrow}, {length}) + {narrow}({start})"
        return f"lax.scan(lambda c, i: ({step}(i, *c), c[1]), {state}, {numbers})"
    if kind == "counter":
        body = f"(c[0] + {narrow}(1), {step}(c[0], *c[1])), c[1][1]"
        return f"lax.scan(lambda c, _: ({body}), ({narrow}({start}), {state}), length={length})"
    return (
        f"lax.while_loop(lambda c: c[0] < {length}, lambda c: (c[0] + 1, c[1] + {narrow}(1), {step}(c[1], *c[2])), "
        f"(jnp.int32(0), {narrow}({start}), {state}))"
    )


def row_writes(d: Draft, grow: Grow) -> bool:
    """A loop that reads a row of an array, computes another with a state, and writes that into the array."""
    rng = d.rng
    v = d.pick(("float", "int"), rank=1)
    n, *rest = d.shape(v)
    if not n:
        return False
    whole, row = (jax.ShapeDtypeStruct(s, d.aval(v).dtype) for s in (d.shape(v), tuple(rest)))
    inner, name = d.function([row, row], rng.choice((1, 1, 2, 3)), grow)
    made, state = next_carry(inner, [row, row], list(inner.parameters))
    computed = inner.closed(name, f"({made}, {state})")
    length = rng.choice((1, 3, 8, 20, 40, 150))
    reading = place(d, n, length)
    read = rng.choice((f"b[{reading}]", f"lax.dynamic_index_in_dim(b, {reading}, 0, False)", "h"))
    update = written(d, n, length, len(rest) + 1, "r[0]")
    step = f"(lambda i, b, h: (lambda r: ({update}, r[1]))({name}({read}, h)))"
    dtype = rng.choice(COUNTERS)
    state = f"({d.fit(v, whole)}, {d.like(v, shape=rest)})"
    kind = rng.choice(("fori", "scan", "scan", "counter", "while"))
    return d.add("row writes", loop(kind, dtype, rng.choice(STARTS[dtype]), length, state, step), [computed])


def narrow_counter(d: Draft, grow: Grow) -> bool:
    """A counter that may wrap, what it reads in each step, and what is computed of it."""
    rng = d.rng
    v = d.pick(("float", "int"), rank=1)
    whole = f"jnp.asarray({v})"  # NumPy's arrays, as inputs are, take no traced place.
    dtype = rng.choice(COUNTERS[2:])
    narrow, start = dtype_text(dtype), rng.choice(STARTS[dtype])
    step = rng.choice((1, 1, 1, 2, 7, 100))
    wide = f"c.astype({dtype_text(dtype_name(d.aval(v)))})"
    read = rng.choice(
        (
            f"{whole}[c]",
            f"{whole}[c]",
            f"{whole}[c % 5]",
            f"jnp.take({v}, c, axis=0, mode='{rng.choice(MODES)}')",
            f"lax.dynamic_index_in_dim({v}, c, 0, False)",
            f"{v}[0] + {wide}",
            f"{v}[0] * (c // 3 > 4)",
            f"jnp.where(c > {rng.choice((3, 100))}, {v}[0], {v}[-1])",
        )
    )
    length = rng.choice((5, 20, 200, 300))
    if rng.random() < 0.7:
        sign = rng.choice(("+", "+", "-"))
        text = f"lax.scan(lambda c, _: (c {sign} {narrow}({step}), {read}), {narrow}({start}), length={length})"
    else:
        text = (
            f"lax.fori_loop(0, {length}, lambda _, s: (lambda c: (c + {narrow}({step}), s[1] + {read}))(s[0]), "
            f"({narrow}({start}), {d.like(v, shape=d.shape(v)[1:])}))"
        )
    return d.add("narrow counter", text)


def narrow_places(d: Draft, grow: Grow) -> bool:
    """Places that are counted in a narrow type, read, added to, and compared."""
    rng = d.rng
    v = d.pick(("float", "int"), rank=1)
    whole = f"jnp.asarray({v})"  # NumPy's arrays, as inputs are, take no traced place.
    n, *rest = d.shape(v)
    dtype = rng.choice(COUNTERS[2:])
    count = rng.choice((max(n, 1), 5, 100, 200, 300))
    i = f"lax.iota({dtype_text(dtype)}, {count})"
    i = f"({i}{rng.choice(('', '', '', ' + 1', ' + 100', ' * 3', ' % 7', ' // 2', ' - 1'))})"
    added = d.like(v, shape=(count, *rest))
    numbers = (
        f"lax.ScatterDimensionNumbers(update_window_dims={tuple(range(1, len(rest) + 1))}, "
        "inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))"
    )
    text = rng.choice(
        (
            f"{whole}[{i}]",
            f"jnp.take({v}, {i}, axis=0, mode='{rng.choice(MODES)}')",
            f"{whole}.at[{i}].add({added})",
            f"{whole}.at[{i}].max({added})",
            f"lax.scatter_add({v}, {i}[:, None], {added}, {numbers}, mode='{rng.choice(('clip', 'drop'))}')",
            f"jnp.where({i}.reshape({(count, *[1] * len(rest))}) > {rng.choice((3, 100))}, {added}, 0)",
        )
    )
    return d.add("narrow places", text)


COMPOSED: dict[str, Composed] = {
    "row writes": row_writes,
    "narrow counter": narrow_counter,
    "narrow places": narrow_places,
}
