"""Functions of functions: derivatives, batches, branches, checkpoints, inner ``jit``s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tests.fuzz.draft import Draft, kind_of

Grow = Callable[[Draft, int], None]
Composed = Callable[[Draft, Grow], bool]
"""Adds a statement with a function in it; False where it does not come to be."""


def steps(d: Draft) -> int:
    return d.rng.choice((1, 2, 2, 3, 4, 6))


def operands(d: Draft, kinds: tuple[str, ...] = (), rank: int = 0) -> list[str]:
    """One to three values, each once."""
    return list(dict.fromkeys(d.pick(kinds, rank) for _ in range(d.rng.choice((1, 1, 2, 3)))))


def avals(d: Draft, names: list[str]) -> list[Any]:
    return [d.aval(n) for n in names]


def results(inner: Draft, most: int = 3) -> list[str]:
    """What a function returns: the newest of its values that it does not use itself."""
    used = {n for s in inner.statements for n in s.uses}
    made = [n for s in inner.statements for n in s.targets if kind_of(inner.aval(n)) != "key"]
    ends = [n for n in made if n not in used] or made
    names = ends or [n for n in inner.parameters if kind_of(inner.aval(n)) != "key"]
    count = inner.rng.randint(1, most)
    return names[-count:]


def floats(inner: Draft) -> list[str]:
    made = [n for s in inner.statements for n in s.targets] + list(inner.parameters)
    return [n for n in made if kind_of(inner.aval(n)) == "float"]


def call_of(wrapper: str, op: str) -> Composed:
    """``wrapper`` of a function, called on values."""

    def composed(d: Draft, grow: Grow) -> bool:
        given = operands(d)
        inner, name = d.function(avals(d, given), steps(d), grow)
        function = inner.closed(name, f"({', '.join(results(inner))},)")
        return d.add(op, f"{wrapper.format(g=name)}({', '.join(given)})", [function])

    return composed


def loss(inner: Draft) -> str | None:
    """A real number out of what a function computed."""
    found = floats(inner)
    if not found:
        return None
    parts = [f"jnp.sum({n}.astype(jnp.float32))" for n in found[-inner.rng.randint(1, 2) :]]
    return " + ".join(parts)


def grad(d: Draft, grow: Grow) -> bool:
    given = operands(d, ("float",))
    inner, name = d.function(avals(d, given), steps(d), grow)
    returns = loss(inner)
    if returns is None:
        return False
    kind = d.rng.choice(("jax.grad", "jax.grad", "jax.value_and_grad"))
    which = tuple(range(d.rng.randint(1, len(given))))
    text = f"{kind}({name}, argnums={which})({', '.join(given)})"
    if d.rng.random() < 0.2:
        text = f"{kind}(jax.checkpoint({name}), argnums={which})({', '.join(given)})"
    return d.add("jax.grad", text, [inner.closed(name, returns)])


def directional(d: Draft, grow: Grow) -> bool:
    given = [d.pick(("float",))]
    inner, name = d.function(avals(d, given), steps(d), grow)
    found = floats(inner)
    if not found:
        return False
    function = inner.closed(name, found[-1])
    if d.rng.random() < 0.5:
        return d.add("jax.jvp", f"jax.jvp({name}, ({given[0]},), ({d.like(given[0])},))", [function])
    return d.add("jax.vjp", f"(lambda r: r[1](jnp.ones_like(r[0])))(jax.vjp({name}, {given[0]}))", [function])


def vmap(d: Draft, grow: Grow) -> bool:
    """Over any axis of some operands, the others whole."""
    rng = d.rng
    first = d.pick(rank=1)
    shape = d.shape(first)
    at = rng.randrange(len(shape))
    given, places, inside = [first], [at], [_without(d, first, at)]
    for other in operands(d)[:1]:
        fits = [k for k, n in enumerate(d.shape(other)) if n == shape[at]]
        place = rng.choice(fits) if fits and rng.random() < 0.7 else None
        given.append(other)
        places.append(place)
        inside.append(d.aval(other) if place is None else _without(d, other, place))
    inner, name = d.function(inside, steps(d), grow)
    out = results(inner, 1)[0]
    out_axis = rng.randint(0, len(inner.shape(out)))
    text = f"jax.vmap({name}, in_axes={tuple(places)}, out_axes={out_axis})({', '.join(given)})"
    return d.add("jax.vmap", text, [inner.closed(name, out)])


def _without(d: Draft, name: str, axis: int) -> Any:
    shape = d.shape(name)
    return jax.ShapeDtypeStruct(shape[:axis] + shape[axis + 1 :], d.aval(name).dtype)


def branches(d: Draft, grow: Grow, count: int) -> tuple[list[str], list[str], list[Any]]:
    """Functions of the same operands with results of the same types."""
    given = operands(d)
    made = [d.function(avals(d, given), steps(d), grow) for _ in range(count)]
    first = made[0][0]
    types = [first.aval(n) for n in results(first)]
    functions = []
    for inner, name in made:
        last = (results(inner, 3) * 3)[: len(types)]
        functions.append(
            inner.closed(name, f"({', '.join(inner.fit(n, t) for n, t in zip(last, types, strict=True))},)")
        )
    return given, [name for _, name in made], functions


def predicate(d: Draft) -> str:
    found = d.find(lambda a: kind_of(a) == "bool" and not a.shape)
    if found is not None and d.rng.random() < 0.5:
        return found
    number = d.pick(("float", "int"))
    return f"jnp.sum({number}) > {d.rng.choice((0, 1))}"


def cond(d: Draft, grow: Grow) -> bool:
    given, names, functions = branches(d, grow, 2)
    return d.add("lax.cond", f"lax.cond({predicate(d)}, {', '.join([*names, *given])})", functions)


def switch(d: Draft, grow: Grow) -> bool:
    given, names, functions = branches(d, grow, d.rng.choice((1, 2, 3)))
    index = f"jnp.sum({d.pick(('int', 'bool'))}).astype(jnp.int32) % 5 - 1"
    return d.add("lax.switch", f"lax.switch({index}, [{', '.join(names)}], {', '.join(given)})", functions)


def platform(d: Draft, grow: Grow) -> bool:
    given, names, functions = branches(d, grow, 2)
    text = f"lax.platform_dependent({', '.join(given)}, cpu={names[0]}, default={names[1]})"
    return d.add("lax.platform_dependent", text, functions)


def vectorized_map(d: Draft, grow: Grow) -> bool:
    first = d.pick(rank=1)
    if d.shape(first)[0] > 9:
        return False
    inner, name = d.function([_without(d, first, 0)], steps(d), grow)
    batch = d.rng.choice(("", ", batch_size=2"))
    return d.add("lax.map", f"lax.map({name}, {first}{batch})", [inner.closed(name, f"({', '.join(results(inner))},)")])


COMPOSED: dict[str, Composed] = {
    "jax.grad": grad,
    "jax.jvp": directional,
    "jax.vmap": vmap,
    "jax.jit": call_of("jax.jit({g})", "jax.jit"),
    "jax.checkpoint": call_of("jax.checkpoint({g})", "jax.checkpoint"),
    "lax.cond": cond,
    "lax.switch": switch,
    "lax.platform_dependent": platform,
    "lax.map": vectorized_map,
}
