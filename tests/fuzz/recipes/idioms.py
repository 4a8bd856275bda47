"""What programs often do with places and signs: neighbours at the edges of an array, windows that start anywhere, the
largest of numbers that are all below zero."""

from __future__ import annotations

from tests.fuzz.draft import Draft, kind_of
from tests.fuzz.recipes.arrays import some_axis
from tests.fuzz.recipes.composed import Composed, Grow


def neighbours(d: Draft, grow: Grow) -> bool:
    """The elements beside each other along an axis; at an edge the last one, the first one or the one within."""
    rng, v = d.rng, d.pick(rank=1)
    axis = rng.randrange(len(d.shape(v)))
    n = d.shape(v)[axis]
    if n < 2:
        return False
    i, last = f"jnp.arange({n})", n - 1
    inside, edge = rng.choice(
        ((f"{i} + 1", "0"), (f"{i} - 1", str(last)), (i, "0"), (i, str(last - 1)), (i, f"{i} - 1"))
    )
    condition = rng.choice((f"{i} < {last}", f"{i} < {last}", f"{i} <= {last - 1}", f"{i} > 0", f"{i} != {last}"))
    places = rng.choice(
        (
            f"jnp.where({condition}, {inside}, {edge})",
            f"jnp.where({condition}, {inside}, {edge})",
            f"jnp.minimum({i} + 1, {last})",
            f"jnp.clip({i} - 1, 0, {last})",
            f"({i} + {rng.choice((1, 2, last))}) % {n}",
        )
    )
    if rng.random() < 0.5:
        mode = rng.choice(("", ", mode='clip'", ", mode='wrap'", ", mode='fill'"))
        return d.add("neighbours", f"jnp.take({v}, {places}, axis={axis}{mode})")
    return d.add("neighbours", f"{v}[{', '.join([':'] * axis + [places])}]")


def windows(d: Draft, grow: Grow) -> bool:
    """Pieces of one length from any places on, some of them past the end."""
    rng, v = d.rng, d.pick(rank=1)
    axis = some_axis(d, v) or 0
    n, count = d.shape(v)[axis], rng.choice((1, 3, 8))
    if not n:
        return False
    length = rng.choice((1, 2, 3, max(n // 2, 1), max(n - 1, 1)))
    if length > n:
        return False
    low, high = rng.choice(((0, n), (0, n - length + 1), (-3, n + 3)))
    make = f"np.random.default_rng({rng.randrange(99)}).integers({low}, {high}, ({count},), np.int32)"
    starts = d.input("int32", (count,), make)
    return d.add("windows", f"jax.vmap(lambda i: lax.dynamic_slice_in_dim({v}, i, {length}, {axis}))({starts})")


def one_sided(d: Draft, grow: Grow) -> bool:
    """The extremes of numbers of one sign, and what is made of them."""
    rng, v = d.rng, d.pick(("float", "int"), rank=1)
    axis = rng.randrange(len(d.shape(v)))
    if kind_of(d.aval(v)) == "int":
        below, above = f"(-{v} // 2 - 1).clip(max=-1)", f"({v} // 2).clip(min=1)"
    else:
        below = rng.choice((f"-jnp.exp({v})", f"-1 - jnp.abs({v})", f"jax.nn.log_softmax({v}, {axis}) - 1"))
        above = rng.choice((f"jnp.exp({v})", f"1 + jnp.abs({v})"))
    largest = rng.choice(("jnp.max", "jnp.argmax", "lax.cummax", "jax.nn.logsumexp"))
    smallest = rng.choice(("jnp.min", "jnp.argmin", "lax.cummin", "jnp.prod"))
    call, value = rng.choice(((largest, below), (largest, below), (smallest, above)))
    return d.add("one-sided", f"{call}({value}, {axis})")


COMPOSED: dict[str, Composed] = {"neighbours": neighbours, "windows": windows, "one-sided": one_sided}
