"""Operations on each element."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.drawn.generator import Generator
from tests.drawn.values import DTYPES, FLOATS, Value

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


def condition(g: Generator, shape: tuple[int, ...]) -> Value | None:
    """A truth value for each element, found or made."""
    found = [p for p in g.values if p.dtype == "pred" and p.shape == shape]
    if found:
        return g.rng.choice(found)
    exact = [p for p in g.values if p.shape == shape and p.exact]
    return compare(g, g.rng.choice(exact)) if exact else None


def select(g: Generator, v: Value) -> None:
    w = g.partner(v)
    p = condition(g, v.shape) if w is not None else None
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
