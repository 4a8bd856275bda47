"""Loops around functions: ``scan``, ``fori_loop`` and ``while_loop``, of a few trips."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.fuzz.draft import Draft, kind_of
from tests.fuzz.recipes.composed import Composed, Grow, avals, operands, results, steps

INTEGER = jax.ShapeDtypeStruct((), np.int32)


def carried(d: Draft) -> tuple[list[str], list[Any]]:
    """Expressions of what starts a carry, without weak types, and their types."""
    names = operands(d)
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals(d, names)]
    starts = [d.fit(n, t) for n, t in zip(names, types, strict=True)]
    if d.rng.random() < 0.35 and kind_of(types[0]) != "key":
        starts, types = [*starts, d.like(names[0])], [*types, types[0]]  # Two of a type, which may change places.
    return starts, types


def next_carry(inner: Draft, types: list[Any], parameters: list[str]) -> list[str]:
    """For each place of the carry an expression of its type: of the newest values, or what was there."""
    made = [n for s in inner.statements for n in s.targets if kind_of(inner.aval(n)) != "key"]
    texts = []
    for parameter, wanted in zip(parameters, types, strict=True):
        others = [p for p, t in zip(parameters, types, strict=True) if t == wanted and p != parameter]
        if others and inner.rng.random() < 0.25:
            texts.append(inner.rng.choice(others))
            continue
        exact = [n for n in made if inner.shape(n) == wanted.shape and inner.aval(n).dtype == wanted.dtype]
        if exact and inner.rng.random() < 0.7:
            texts.append(inner.fit(exact[-1], wanted))
        elif made and inner.rng.random() < 0.85:
            texts.append(inner.fit(inner.rng.choice(made[-4:]), wanted))
        else:
            texts.append(parameter)
    return texts


def scan(d: Draft, grow: Grow) -> bool:
    """A carry of some values, and rows of others as inputs; with or without stacked outputs."""
    rng = d.rng
    starts, types = carried(d)
    rows = d.find(lambda a: len(a.shape) > 0 and 0 < a.shape[0] <= 9 and kind_of(a) != "key")
    length = d.shape(rows)[0] if rows is not None else rng.choice((0, 1, 2, 3, 5, 8))
    inside = list(types)
    if rows is not None:
        inside.append(jax.ShapeDtypeStruct(d.shape(rows)[1:], d.aval(rows).dtype))
    inner, name = d.function(inside, steps(d), grow)
    carry = [f"({', '.join(inner.parameters[: len(types)])},)"]
    texts = next_carry(inner, types, list(inner.parameters[: len(types)]))
    stacked = f"({', '.join(results(inner))},)" if rng.random() < 0.7 else "None"
    parameters = ", ".join(inner.parameters[len(types) :])
    body = inner.closed(name, f"({', '.join(texts)},), {stacked}")
    step = f"lambda c, x: {name}(*c{', x' if parameters else ''})"
    how = f"reverse={rng.random() < 0.3}" + rng.choice(("", "", ", unroll=2"))
    xs = rows if rows is not None else "None"
    del carry
    return d.add("lax.scan", f"lax.scan({step}, ({', '.join(starts)},), {xs}, length={length}, {how})", [body])


def fori_loop(d: Draft, grow: Grow) -> bool:
    rng = d.rng
    starts, types = carried(d)
    inner, name = d.function([INTEGER, *types], steps(d), grow)
    texts = next_carry(inner, types, list(inner.parameters[1:]))
    body = inner.closed(name, f"({', '.join(texts)},)")
    lower = rng.choice((0, 0, 1, -2))
    upper = str(lower + rng.choice((0, 1, 2, 3, 5, 8)))
    if rng.random() < 0.25:
        upper = f"jnp.sum({d.pick(('int', 'bool'))}).astype(jnp.int32) % 6"
    text = f"lax.fori_loop({lower}, {upper}, lambda i, c: {name}(i, *c), ({', '.join(starts)},))"
    return d.add("lax.fori_loop", text, [body])


def while_loop(d: Draft, grow: Grow) -> bool:
    """Ends after a few trips, or earlier by what it computes."""
    rng = d.rng
    starts, types = carried(d)
    inner, name = d.function([INTEGER, *types], steps(d), grow)
    texts = next_carry(inner, types, list(inner.parameters[1:]))
    body = inner.closed(name, f"({', '.join([f'{inner.parameters[0]} + 1', *texts])},)")
    goes = f"c[0] < {rng.choice((0, 1, 2, 5, 8))}"
    numbers = [k for k, t in enumerate(types) if kind_of(t) in ("float", "int")]
    if numbers and rng.random() < 0.5:
        goes = f"({goes}) & (jnp.sum(c[{rng.choice(numbers) + 1}]) < {rng.choice((5, 100))})"
    text = f"lax.while_loop(lambda c: {goes}, lambda c: {name}(*c), (jnp.int32(0), {', '.join(starts)}))"
    return d.add("lax.while_loop", text, [body])


def scan_of_grad(d: Draft, grow: Grow) -> bool:
    """The derivative of a loop."""
    rng = d.rng
    x = d.pick(("float",))
    start = d.fit(x, jax.ShapeDtypeStruct(d.shape(x), d.aval(x).dtype))
    inner, name = d.function([jax.ShapeDtypeStruct(d.shape(x), d.aval(x).dtype)], steps(d), grow)
    texts = next_carry(inner, [inner.aval(inner.parameters[0])], [inner.parameters[0]])
    body = inner.closed(name, texts[0])
    length = rng.choice((1, 2, 3, 5))
    loop = f"lax.scan(lambda c, _: ({name}(c), c), start, None, length={length})"
    text = f"jax.grad(lambda start: jnp.sum({loop}[{rng.choice((0, 1))}].astype(jnp.float32)))({start})"
    return d.add("jax.grad(lax.scan)", text, [body])


COMPOSED: dict[str, Composed] = {
    "lax.scan": scan,
    "lax.fori_loop": fori_loop,
    "lax.while_loop": while_loop,
    "jax.grad(lax.scan)": scan_of_grad,
}
