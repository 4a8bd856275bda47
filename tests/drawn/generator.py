"""Grows a random program, operation by operation, and knows of every value how exact it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.drawn.values import DTYPES, FLOATS, INTEGERS, Program, Value

Operations = Sequence[Callable[["Generator", Value], Any]]
"""Each adds one operation on a value, or nothing where the value does not admit it; some stand there more than once."""


class Generator:
    """Grows one program. Operations that a value does not admit are skipped. ``inner`` are those in bodies of loops,
    ``outer`` grows what is around such a body.
    """

    loops: tuple[str, ...] = ("scan", "scan", "fori", "while")
    """How loops are written."""
    scalars: tuple[str, ...] = ()
    """Types of arguments that are single numbers."""
    ranks: tuple[int, ...] = (0, 1, 2, 2, 2, 3, 3, 4)
    """Of what most arguments are."""
    types: tuple[str, ...] = ("f32", "f32", "f32", "f16", "bf16", "f64", *INTEGERS, "pred")

    def __init__(
        self,
        rng: Random,
        operations: Operations,
        inner: Operations,
        *,
        max_size: int,
        prefix: str = "v",
        outer: Generator | None = None,
    ):
        self.outer = outer
        self.rng = rng
        self.operations = operations
        self.inner = inner
        self.max_size = max_size
        self.prefix = prefix
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.inputs: list[Value] = []

    def program(self, steps: int) -> Program:
        rng = self.rng
        dims = [rng.choice((1, 2, 3, 4, 5, 7, 8, 16, 33)) for _ in range(rng.choice(self.ranks))]
        if dims and rng.random() < 0.3:
            dims[rng.randrange(len(dims))] = rng.choice((100, 130, 257, 600, 1030))
        while math.prod(dims) > self.max_size:
            dims.remove(max(dims))
        self.base = tuple(dims)
        main = rng.choice(self.types)
        for _ in range(rng.choice((1, 2, 3))):
            self._input(main, self.base)
        if rng.random() < 0.5:
            self._input(rng.choice(tuple(DTYPES)), self._part(self.base))
        for dtype in self.scalars:
            self._input(dtype, ())
        self.grow(steps)
        return self._finish()

    def grow(self, steps: int) -> None:
        """Lines until there are so many."""
        while len(self.lines) < steps:
            operation = self.rng.choice(self.operations)
            operation(self, self._pick())

    def _finish(self) -> Program:
        rng = self.rng
        made = [v for v in self.values if v not in self.inputs]
        chosen = [v for v in made if not any(_uses(line, v.name) for line in self.lines)]
        chosen += [v for v in made if v not in chosen and rng.random() < 0.15]
        return Program(tuple(self.lines), tuple(self.inputs), tuple(chosen), rng.randrange(1 << 30))

    # -- helpers

    def _part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(d for d in shape if self.rng.random() < 0.6)

    def _input(self, dtype: str, shape: tuple[int, ...]) -> None:
        v = Value(f"x{len(self.inputs)}", dtype, shape, 4.0 if dtype in FLOATS else 0.0, 1)
        self.inputs.append(v)
        self.values.append(v)

    def late_input(self, dtype: str, shape: Sequence[int]) -> Value:
        """One more argument of the program."""
        if self.outer is not None:
            return self.outer.late_input(dtype, shape)
        self._input(dtype, tuple(shape))
        return self.inputs[-1]

    def _pick(self, suits: Callable[[Value], bool] = lambda v: True) -> Value:
        found = [v for v in self.values if suits(v)]
        recent = found[-6:] if self.rng.random() < 0.7 else found
        return self.rng.choice(recent)

    def add(self, text: str, like: Value, **changes: Any) -> Value | None:
        """A line ``v = text``; None where the value is too large, or known too little of, to be worth having."""
        shape = tuple(changes.get("shape", like.shape))
        dtype = changes.get("dtype", like.dtype)
        most, fraction, error = (changes.get(k, getattr(like, k)) for k in ("most", "fraction", "error"))
        if math.prod(shape) > self.max_size or math.prod(shape) == 0:
            return None
        if dtype in FLOATS:
            unit = 2.0 ** -FLOATS[dtype]
            if error == 0 and most > 0 and math.log2(most) + fraction > FLOATS[dtype]:
                error = unit * most
            if error > 0.05 * most or most > 1000 or fraction > 40:
                return None
        else:
            most, fraction, error = 0.0, 0, 0.0
        v = Value(f"{self.prefix}{len(self.lines)}", dtype, shape, most, fraction, error)
        self.lines.append(f"{v.name} = {text}")
        self.values.append(v)
        return v

    def scalar(self, dtype: str, value: float) -> str:
        return f"np.asarray({value}, D['{dtype}'])"

    def constant(self, like: Value) -> Value | None:
        """A value of the same type from nothing."""
        rng = self.rng
        shape = f"D['{like.dtype}'], {like.shape}"
        if like.shape and like.dtype != "pred" and rng.random() < 0.5:
            d = rng.randrange(len(like.shape))
            if like.dtype not in FLOATS or like.shape[d] <= 100:
                most = float(max(like.shape[d] - 1, 1))
                return self.add(f"lax.broadcasted_iota({shape}, {d})", like, most=most, fraction=0, error=0.0)
        if like.shape and like.size <= 40 and rng.random() < 0.5:
            values = [rng.randrange(2 if like.dtype == "pred" else 5) for _ in range(like.size)]
            text = f"jnp.asarray(np.asarray({values}, D['{like.dtype}']).reshape({like.shape}))"
            return self.add(text, like, most=4.0, fraction=0, error=0.0)
        value = rng.choice((0, 1)) if like.dtype == "pred" else rng.choice((0, 1, 2, 3))
        text = f"lax.full({like.shape}, {value}, D['{like.dtype}'])"
        return self.add(text, like, most=4.0, fraction=0, error=0.0)

    def partner(self, v: Value) -> Value | None:
        """Another value of the same type, found or made."""
        rng = self.rng
        same = [p for p in self.values if (p.dtype, p.shape) == (v.dtype, v.shape)]
        if rng.random() < 0.7 and len(same) > 1:
            return rng.choice(same)
        smaller = [p for p in self.values if p.dtype == v.dtype and placed(p.shape, v.shape) and p.shape != v.shape]
        if smaller and rng.random() < 0.8:
            p = rng.choice(smaller)
            dims = rng.choice(placed(p.shape, v.shape))
            return self.add(f"lax.broadcast_in_dim({p.name}, {v.shape}, {dims})", p, shape=v.shape)
        return self.constant(v)


def _uses(line: str, name: str) -> bool:
    return any(word == name for word in line.replace("(", " ").replace(")", " ").replace(",", " ").split()[2:])


def placed(small: tuple[int, ...], large: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The ways in which the dimensions of one shape are, in order, some of another's."""
    if not small:
        return [()]
    found = []
    for k, d in enumerate(large):
        if d == small[0]:
            found += [(k, *(k + 1 + r for r in rest)) for rest in placed(small[1:], large[k + 1 :])]
    return found
