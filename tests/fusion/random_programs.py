"""Random JAX functions from the operations that a kernel can hold, with what their results may differ by.

A program is Python text, so that a failure prints as something to run. Of every value the generator knows whether all
implementations agree on it to the bit (integers, truth values, floats that are short binary fractions), and if not, by
how much two may differ at most: only values of the first kind are compared, rounded or used as indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

FLOATS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""Significant bits."""
INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
DTYPES: dict[str, Any] = {
    "pred": np.dtype(bool),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{k}{n}": np.dtype(f"{'u' * (k == 'u')}int{n}") for k in "su" for n in (8, 16, 32, 64)},
}
MAX_SIZE = 6000


@dataclass(frozen=True)
class Value:
    """A value of the program: of a float no larger than ``most``; exact ones are multiples of ``2 ** -fraction``,
    others at most ``error`` from the exact value."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    most: float = 0.0
    fraction: int = 0
    error: float = 0.0

    @property
    def exact(self) -> bool:
        return self.error == 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Program:
    """A function ``f`` as text, its arguments, and for each result the most by which two implementations may differ."""

    lines: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    seed: int

    @property
    def text(self) -> str:
        head = f"def f({', '.join(v.name for v in self.inputs)}):"
        results = ", ".join(v.name for v in self.outputs)
        return "\n".join([head, *("    " + line for line in self.lines), f"    return ({results},)"])

    @property
    def fun(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"lax": lax, "jnp": jnp, "np": np, "D": DTYPES}
        exec(self.text, space)
        return space["f"]

    @property
    def args(self) -> list[jax.Array]:
        rng = np.random.default_rng(self.seed)
        return [jnp.asarray(_input(rng, v)) for v in self.inputs]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{v.name}: {v.dtype}{list(v.shape)}" for v in self.inputs)
        return f"# {shapes}; seed {self.seed}\n{self.text}\n"


def _input(rng: np.random.Generator, v: Value) -> np.ndarray:
    dtype = DTYPES[v.dtype]
    if v.dtype == "pred":
        return rng.random(v.shape) < 0.5
    if v.dtype in FLOATS:
        steps = int(v.most * 2**v.fraction)
        return (rng.integers(-steps, steps + 1, v.shape) / 2**v.fraction).astype(dtype)
    info = np.iinfo(dtype)
    small = rng.integers(max(info.min, -9), 10, v.shape)
    full = rng.integers(info.min, info.max, v.shape, dtype=dtype, endpoint=True)
    return np.where(rng.random(v.shape) < 0.7, small, full).astype(dtype)


def differences(program: Program, got: Sequence[Any], want: Sequence[Any]) -> list[str]:
    """In which results two runs differ by more than they may."""
    found = []
    for v, g, w in zip(program.outputs, got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            found.append(f"{v.name}: {g.dtype}{g.shape} for {w.dtype}{w.shape}")
            continue
        if v.exact:
            bad = ~((g == w) | ((g != g) & (w != w)))
        else:
            a, b = g.astype(np.float64), w.astype(np.float64)
            with np.errstate(invalid="ignore"):
                bad = ~((np.abs(a - b) <= 2 * v.error) | (a == b) | (np.isnan(a) & np.isnan(b)))
        if bad.any():
            at = np.unravel_index(int(np.argmax(bad)), bad.shape)
            found.append(f"{v}: {bad.sum()} of {v.size} differ, at {at} {g[at]} for {w[at]}")
    return found


class Generator:
    """Grows one program. Operations that a value does not admit are skipped."""

    def __init__(self, rng: Random, *, max_size: int = MAX_SIZE):
        self.rng = rng
        self.max_size = max_size
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.inputs: list[Value] = []

    def program(self, steps: int) -> Program:
        rng = self.rng
        dims = [rng.choice((1, 2, 3, 4, 5, 7, 8, 16, 33)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
        if dims and rng.random() < 0.3:
            dims[rng.randrange(len(dims))] = rng.choice((100, 130, 257, 600, 1030))
        while math.prod(dims) > self.max_size:
            dims.remove(max(dims))
        self.base = tuple(dims)
        main = rng.choice(("f32", "f32", "f32", "f16", "bf16", "f64", *INTEGERS, "pred"))
        for _ in range(rng.choice((1, 2, 3))):
            self._input(main, self.base)
        if rng.random() < 0.5:
            self._input(rng.choice(tuple(DTYPES)), self._part(self.base))
        while len(self.lines) < steps:
            operation = rng.choice(OPERATIONS)
            operation(self, self._pick())
        return self._finish()

    def _finish(self) -> Program:
        rng = self.rng
        made = self.values[len(self.inputs) :]
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
        v = Value(f"v{len(self.lines)}", dtype, shape, most, fraction, error)
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
        smaller = [p for p in self.values if p.dtype == v.dtype and _placed(p.shape, v.shape) and p.shape != v.shape]
        if smaller and rng.random() < 0.8:
            p = rng.choice(smaller)
            dims = rng.choice(_placed(p.shape, v.shape))
            return self.add(f"lax.broadcast_in_dim({p.name}, {v.shape}, {dims})", p, shape=v.shape)
        return self.constant(v)

    def condition(self, shape: tuple[int, ...]) -> Value | None:
        found = [p for p in self.values if p.dtype == "pred" and p.shape == shape]
        if found:
            return self.rng.choice(found)
        exact = [p for p in self.values if p.shape == shape and p.exact]
        return compare(self, self.rng.choice(exact)) if exact else None


def _uses(line: str, name: str) -> bool:
    return any(word == name for word in line.replace("(", " ").replace(")", " ").replace(",", " ").split()[2:])


def _placed(small: tuple[int, ...], large: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The ways in which the dimensions of one shape are, in order, some of another's."""
    if not small:
        return [()]
    found = []
    for k, d in enumerate(large):
        if d == small[0]:
            found += [(k, *(k + 1 + r for r in rest)) for rest in _placed(small[1:], large[k + 1 :])]
    return found


# -- operations

SMOOTH: dict[str, tuple[str, float, Callable[[float], float], float]] = {
    # name: text, steepest slope, largest result, largest argument
    "exp": ("lax.exp({x})", 25.0, lambda m: math.exp(m), 3.0),
    "expm1": ("lax.expm1({x})", 25.0, lambda m: math.exp(m), 3.0),
    "tanh": ("lax.tanh({x})", 1.0, lambda m: 1.0, 1e9),
    "logistic": ("lax.logistic({x})", 1.0, lambda m: 1.0, 1e9),
    "sin": ("lax.sin({x})", 1.0, lambda m: 1.0, 100.0),
    "cos": ("lax.cos({x})", 1.0, lambda m: 1.0, 100.0),
    "erf": ("lax.erf({x})", 1.2, lambda m: 1.0, 1e9),
    "log": ("lax.log(lax.abs({x}) + {one})", 1.0, lambda m: 1 + math.log(m + 1), 1e9),
    "log1p": ("lax.log1p(lax.abs({x}))", 1.0, lambda m: 1 + math.log(m + 1), 1e9),
    "sqrt": ("lax.sqrt(lax.abs({x}) + {one})", 1.0, lambda m: math.sqrt(m + 1), 1e9),
    "cbrt": ("lax.cbrt(lax.abs({x}) + {one})", 1.0, lambda m: math.sqrt(m + 1), 1e9),
    "rsqrt": ("lax.rsqrt(lax.abs({x}) + {one})", 1.0, lambda m: 1.0, 1e9),
    "tan": ("lax.tan({x} * {small})", 1.0, lambda m: 1.0, 4.0),
    "pow": ("lax.pow(lax.abs({x}) + {one}, {half})", 1.0, lambda m: math.sqrt(m + 1), 1e9),
    "precision": ("lax.reduce_precision({x}, 8, 6)", 1.0, lambda m: m, 1e9),
}


def unary(g: Generator, v: Value) -> None:
    rng = g.rng
    if v.dtype == "pred":
        g.add(f"lax.bitwise_not({v.name})", v)
    elif v.dtype in FLOATS:
        if v.exact and rng.random() < 0.3:
            kind = rng.choice(("floor", "ceil", "round", "sign"))
            g.add(f"lax.{kind}({v.name})", v, most=v.most + 1, fraction=0)
        elif rng.random() < 0.3:
            g.add(f"lax.{rng.choice(('neg', 'abs'))}({v.name})", v)
        else:
            text, slope, most, largest = SMOOTH[rng.choice(tuple(SMOOTH))]
            if v.most <= largest:
                names = {k: g.scalar(v.dtype, x) for k, x in (("one", 1), ("small", 0.125), ("half", 0.5))}
                unit = 2.0 ** -FLOATS[v.dtype]
                bound = most(v.most)
                loose = 2.0**-7 * bound if "precision" in text else 0.0
                error = slope * (v.error + 2 * unit * (v.most + 1)) + 4 * unit * bound + loose
                g.add(text.format(x=v.name, **names), v, most=bound, fraction=0, error=error)
    else:
        kinds = ["bitwise_not", "sign", "population_count", "clz"] + ["neg", "abs"] * (v.dtype[0] == "s")
        g.add(f"lax.{rng.choice(kinds)}({v.name})", v)


def binary(g: Generator, v: Value) -> None:
    rng = g.rng
    w = g.partner(v)
    if w is None:
        return
    a, b = (v, w) if rng.random() < 0.5 else (w, v)
    if v.dtype == "pred":
        g.add(f"lax.bitwise_{rng.choice(('and', 'or', 'xor'))}({a.name}, {b.name})", v)
        return
    if v.dtype not in FLOATS:
        kinds = ["add", "sub", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"]
        kinds += ["shift_left", "shift_right_arithmetic", "shift_right_logical"] + ["div", "rem"]
        kind = rng.choice(kinds)
        if kind in ("div", "rem"):
            g.add(f"lax.{kind}({a.name}, lax.bitwise_or({b.name}, {g.scalar(v.dtype, 1)}))", v)
        elif kind.startswith("shift"):
            g.add(f"lax.{kind}({a.name}, lax.bitwise_and({b.name}, {g.scalar(v.dtype, 7)}))", v)
        else:
            g.add(f"lax.{kind}({a.name}, {b.name})", v)
        return
    unit = 2.0 ** -FLOATS[v.dtype]
    exact = a.exact and b.exact
    kind = rng.choice(("add", "sub", "mul", "max", "min", "div", "atan2"))
    if kind in ("max", "min"):
        changes = {"most": max(a.most, b.most), "fraction": max(a.fraction, b.fraction), "error": max(a.error, b.error)}
    elif kind in ("add", "sub"):
        most = a.most + b.most
        error = 0.0 if exact else a.error + b.error + unit * most
        changes = {"most": most, "fraction": max(a.fraction, b.fraction), "error": error}
    elif kind == "mul":
        most = a.most * b.most
        error = 0.0 if exact else a.error * (b.most + b.error) + b.error * a.most + unit * most
        changes = {"most": max(most, 1e-9), "fraction": a.fraction + b.fraction, "error": error}
    else:
        one = g.scalar(v.dtype, 1)
        most = a.most if kind == "div" else 1.6
        error = a.error + b.error * (a.most + 1) + 4 * unit * (a.most + 1) * (b.most + 2)
        text = f"lax.{kind}({a.name}, lax.abs({b.name}) + {one})"
        g.add(text, v, most=max(most, 1e-9), fraction=0, error=error)
        return
    g.add(f"lax.{kind}({a.name}, {b.name})", v, **changes)


def compare(g: Generator, v: Value) -> Value | None:
    if not v.exact:
        return None
    w = g.partner(v)
    if w is None or not w.exact:
        return None
    kind = g.rng.choice(("eq", "ne", "lt", "le", "gt", "ge"))
    return g.add(f"lax.{kind}({v.name}, {w.name})", v, dtype="pred")


def select(g: Generator, v: Value) -> None:
    w = g.partner(v)
    p = g.condition(v.shape) if w is not None else None
    if w is not None and p is not None:
        changes = {"most": max(v.most, w.most), "fraction": max(v.fraction, w.fraction), "error": max(v.error, w.error)}
        g.add(f"lax.select({p.name}, {v.name}, {w.name})", v, **changes)


def clamp(g: Generator, v: Value) -> None:
    if v.dtype != "pred":
        low, high = g.scalar(v.dtype, 1), g.scalar(v.dtype, 3)
        g.add(f"lax.clamp({low}, {v.name}, {high})", v, most=max(v.most, 3.0))


def convert(g: Generator, v: Value) -> None:
    to = g.rng.choice(tuple(DTYPES))
    if to == v.dtype:
        return
    text, changes = v.name, {"dtype": to}
    if v.dtype in FLOATS and to not in FLOATS:
        if not v.exact or v.most > 100:
            return
        text = f"lax.abs({v.name})" if to[0] == "u" else text
    elif v.dtype in FLOATS:
        changes["error"] = v.error + (2.0 ** -FLOATS[to] * v.most if v.error else 0.0)
    elif to in FLOATS:
        changes |= {"most": 8.0, "fraction": 0, "error": 0.0}
        if v.dtype != "pred":
            text = f"lax.clamp({g.scalar(v.dtype, 0)}, {v.name}, {g.scalar(v.dtype, 8)})"
    g.add(f"lax.convert_element_type({text}, D['{to}'])", v, **changes)


def bitcast(g: Generator, v: Value) -> None:
    if v.dtype in FLOATS and v.exact:
        width = DTYPES[v.dtype].itemsize * 8
        text = f"lax.abs({v.name}) + {g.scalar(v.dtype, 1)}"  # No zero, whose sign XLA does not keep.
        to = f"{g.rng.choice('su')}{width}"
        g.add(f"lax.bitcast_convert_type({text}, D['{to}'])", v, dtype=to)


def broadcast(g: Generator, v: Value) -> None:
    rng = g.rng
    if len(v.shape) < 4:
        k = rng.randrange(len(v.shape) + 1)
        shape = (*v.shape[:k], rng.choice((1, 2, 3, 5)), *v.shape[k:])
        dims = tuple(d + (d >= k) for d in range(len(v.shape)))
        g.add(f"lax.broadcast_in_dim({v.name}, {shape}, {dims})", v, shape=shape)


def reshape(g: Generator, v: Value) -> None:
    left, shape = v.size, []
    for _ in range(g.rng.choice((0, 1, 2, 3))):
        d = g.rng.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(d)
        left //= d
    shape.insert(g.rng.randrange(len(shape) + 1), left)
    g.add(f"lax.reshape({v.name}, {tuple(shape)})", v, shape=tuple(shape))


def transpose(g: Generator, v: Value) -> None:
    order = g.rng.sample(range(len(v.shape)), len(v.shape))
    g.add(f"lax.transpose({v.name}, {tuple(order)})", v, shape=tuple(v.shape[d] for d in order))


def reverse(g: Generator, v: Value) -> None:
    dims = tuple(d for d in range(len(v.shape)) if g.rng.random() < 0.5)
    g.add(f"lax.rev({v.name}, {dims})", v)


def cut(g: Generator, v: Value) -> None:
    rng = g.rng
    start = [rng.randrange(d) if rng.random() < 0.5 else 0 for d in v.shape]
    limit = [rng.randrange(s, d) + 1 if rng.random() < 0.5 else d for s, d in zip(start, v.shape, strict=True)]
    step = [rng.choice((1, 1, 2, 3)) for _ in v.shape]
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, step, strict=True))
    g.add(f"lax.slice({v.name}, {start}, {limit}, {step})", v, shape=shape)


def concatenate(g: Generator, v: Value) -> None:
    if not v.shape:
        return
    axis = g.rng.randrange(len(v.shape))
    rest = [
        p
        for p in g.values
        if p.dtype == v.dtype
        and len(p.shape) == len(v.shape)
        and all(a == b for d, (a, b) in enumerate(zip(p.shape, v.shape, strict=True)) if d != axis)
    ]
    parts = [v, *(g.rng.choice(rest) for _ in range(g.rng.choice((1, 1, 2))))]
    g.rng.shuffle(parts)
    shape = list(v.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    changes = {k: max(getattr(p, k) for p in parts) for k in ("most", "fraction", "error")}
    g.add(f"lax.concatenate([{', '.join(p.name for p in parts)}], {axis})", v, shape=tuple(shape), **changes)


def pad(g: Generator, v: Value) -> None:
    config = [g.rng.choice(((0, 0, 0), (1, 2, 0), (0, 1, 1), (-1, 0, 0), (2, -1, 0), (-1, 1, 2))) for _ in v.shape]
    shape = tuple(d + a + b + max(d - 1, 0) * i for d, (a, b, i) in zip(v.shape, config, strict=True))
    if all(d > 0 for d in shape):
        value = g.scalar(v.dtype, g.rng.choice((0, 1)))
        g.add(f"lax.pad({v.name}, {value}, {config})", v, shape=shape, most=max(v.most, 1.0))


def _kept(v: Value, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for k, d in enumerate(v.shape) if k not in axes)


def reduce(g: Generator, v: Value) -> Value | None:
    rng = g.rng
    axes = tuple(d for d in range(len(v.shape)) if rng.random() < 0.5) or tuple(range(len(v.shape)))[-1:]
    n = math.prod(v.shape[d] for d in axes)
    shape = _kept(v, axes)
    if v.dtype == "pred":
        return g.add(f"lax.reduce_{rng.choice(('and', 'or', 'xor'))}({v.name}, {axes})", v, shape=shape)
    kinds = ["sum", "sum", "sum", "max", "min"]
    if v.dtype not in FLOATS:
        kinds += ["and", "or", "xor", "prod", "own"]
    kind = rng.choice(kinds)
    if kind == "own":  # (1 + a)(1 + b) - 1: associative, but no single operation.
        zero = g.scalar(v.dtype, 0)
        return g.add(f"lax.reduce({v.name}, {zero}, lambda a, b: a * b + a + b, {axes})", v, shape=shape)
    changes: dict[str, Any] = {"shape": shape}
    if kind == "sum" and v.dtype in FLOATS:
        most = v.most * n
        unit = 2.0 ** -FLOATS[v.dtype]
        changes |= {"most": most, "error": 0.0 if v.exact else n * v.error + n * unit * most}
        if v.exact and math.log2(max(most, 1e-9)) + v.fraction > FLOATS[v.dtype]:
            changes["error"] = n * unit * most
    return g.add(f"lax.reduce_{kind}({v.name}, {axes})", v, **changes)


def scan(g: Generator, v: Value) -> None:
    """Accumulated along one dimension, from either end."""
    rng = g.rng
    if not v.shape or v.dtype == "pred":
        return
    axis = rng.randrange(len(v.shape))
    kind = rng.choice(("sum", "sum", "max", "min", *(("prod",) if v.dtype not in FLOATS else ())))
    changes: dict[str, Any] = {}
    if kind == "sum" and v.dtype in FLOATS:
        n, unit = v.shape[axis], 2.0 ** -FLOATS[v.dtype]
        most = v.most * n
        changes |= {"most": most, "error": 0.0 if v.exact else n * v.error + n * unit * most}
        if v.exact and math.log2(max(most, 1e-9)) + v.fraction > FLOATS[v.dtype]:
            changes["error"] = n * unit * most
    g.add(f"lax.cum{kind}({v.name}, {axis}, reverse={rng.random() < 0.4})", v, **changes)


def reduce_several(g: Generator, v: Value) -> None:
    """A reduction with two operands: the place of the largest value, or two sums at once."""
    rng = g.rng
    if not v.shape:
        return
    axis = rng.randrange(len(v.shape))
    shape = _kept(v, (axis,))
    if v.exact and v.dtype != "pred" and rng.random() < 0.6:
        to = rng.choice(("s32", "s64", "u8" if v.shape[axis] < 200 else "u32"))
        kind = rng.choice(("argmax", "argmin"))
        g.add(f"lax.{kind}({v.name}, {axis}, D['{to}'])", v, shape=shape, dtype=to)
    elif v.dtype[0] in "su":
        w = g.partner(v)
        if w is not None:
            zero = g.scalar(v.dtype, 0)
            both = "lambda a, b: (a[0] + b[0], lax.max(a[1], b[1]))"
            text = f"lax.reduce(({v.name}, {w.name}), ({zero}, {zero}), {both}, ({axis},))"
            g.add(f"{text}[{rng.randrange(2)}]", v, shape=shape)


def normalise(g: Generator, v: Value) -> None:
    """A reduction, and its result back at every element that went into it."""
    rng = g.rng
    before = len(g.lines)
    r = reduce(g, v)
    if r is None or len(g.lines) == before or r.dtype != v.dtype or not v.shape:
        return
    places = _placed(r.shape, v.shape)
    if not places:
        return
    b = g.add(f"lax.broadcast_in_dim({r.name}, {v.shape}, {rng.choice(places)})", r, shape=v.shape)
    if b is not None:
        g.values.append(v)  # As a recent value, so that the two meet.
        binary(g, b)


def take_rows(g: Generator, v: Value) -> None:
    indices = [p for p in g.values if p.dtype[0] in "su" and p.size <= 40 and len(p.shape) + len(v.shape) <= 5]
    if v.shape and indices:
        p = g.rng.choice(indices)
        axis = g.rng.randrange(len(v.shape))
        # "wrap" needs the size in the type of the indices.
        mode = g.rng.choice(("clip", "wrap")) if v.shape[axis] < 128 else "clip"
        shape = (*v.shape[:axis], *p.shape, *v.shape[axis + 1 :])
        g.add(f"jnp.take({v.name}, {p.name}, axis={axis}, mode='{mode}')", v, shape=shape)


def take_along(g: Generator, v: Value) -> None:
    if not v.shape:
        return
    axis = g.rng.randrange(len(v.shape))
    indices = [
        p
        for p in g.values
        if p.dtype[0] in "su"
        and len(p.shape) == len(v.shape)
        and all(a == b for d, (a, b) in enumerate(zip(p.shape, v.shape, strict=True)) if d != axis)
    ]
    if indices:
        p = g.rng.choice(indices)
        g.add(f"jnp.take_along_axis({v.name}, {p.name}, {axis}, mode='clip')", v, shape=p.shape)


def dynamic_slice(g: Generator, v: Value) -> None:
    starts = [p for p in g.values if p.dtype in ("s32", "s64") and not p.shape]
    if v.shape and starts:
        sizes = tuple(g.rng.randrange(d) + 1 if g.rng.random() < 0.5 else d for d in v.shape)
        p = g.rng.choice(starts)
        g.add(f"lax.dynamic_slice({v.name}, ({', '.join([p.name] * len(v.shape))},), {sizes})", v, shape=sizes)


OPERATIONS: list[Callable[[Generator, Value], Any]] = [
    *[unary] * 4,
    *[binary] * 6,
    *[normalise] * 4,
    *[reduce] * 3,
    *[scan] * 2,
    *[reduce_several, compare, select, clamp, convert, convert, bitcast],
    *[broadcast, reshape, reshape, transpose, transpose, reverse, cut, concatenate, pad],
    *[take_rows, take_along, dynamic_slice],
]


def program(rng: Random, *, steps: int = 10, max_size: int = MAX_SIZE) -> Program:
    """A random function of about ``steps`` operations on arrays of up to ``max_size`` elements. Needs x64."""
    while True:
        made = Generator(rng, max_size=max_size).program(steps)
        if made.outputs:
            return made
