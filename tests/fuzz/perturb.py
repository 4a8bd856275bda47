"""A function with each of its roundings moved a little at random: what shows how far its results can be trusted.

The function's jaxpr is evaluated operation by operation. After each operation that rounds, every element moves by a few
units in its last place (for sums and products, the operands as well, and their order), chosen anew for each seed: as
stochastic arithmetic does. Small whole numbers and short binary fractions stay where arithmetic is exact. What rounding
leaves open besides moves too: the sign of zeros and of NaNs, and whether subnormal numbers become zero. ``excess``
keeps 16-bit floats in 32 bits between operations here and there, as XLA may.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal, jaxpr_as_fun

from tests.fuzz.noise import bits_of, following, hashed, moved
from tests.fuzz.roundings import (
    BEFORE,
    CALLS,
    CORRECT,
    ELEMENTWISE,
    EXACT,
    EXTREMES,
    HALVES,
    IN_64_BITS,
    MANY,
    OF_LOGARITHMS,
    SUMS,
    USUAL,
)

PIECES = (2, 4, 8, 16, 32, 64, 128, 256)
"""Lengths of the pieces of a running sum."""

Evaluated = Callable[..., list[Any]]


def perturbed(closed: Any, *, excess: bool = False) -> Evaluated:
    """A function of a seed and the jaxpr's arguments. Seed 0 moves nothing."""

    def run(seed: Any, *arguments: Any) -> list[Any]:
        return _Run(jnp.uint32(seed), excess).evaluate(closed.jaxpr, closed.consts, arguments)

    return run


class _Run:
    """One evaluation, with its seed. ``count`` tells operations apart."""

    def __init__(self, seed: Any, excess: bool):
        self.seed = seed
        self.excess = excess
        self.count = 0

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, map(self.raised, arguments), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            operands = [read(a) for a in equation.invars]
            wide = (
                self.excess and equation.primitive.name in ELEMENTWISE and equation.primitive.name != "reduce_precision"
            )
            if not wide:
                operands = [_narrow(o, a.aval) for o, a in zip(operands, equation.invars, strict=True)]
            results = [self.raised(r) for r in self.equation(equation, operands, wide)]
            values.update(zip(equation.outvars, results, strict=True))
        return [_narrow(read(a), a.aval) for a in jaxpr.outvars]

    def equation(self, equation: Any, operands: list[Any], wide: bool) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        if name in CALLS:
            inner = next(v for k, v in params.items() if k in ("jaxpr", "call_jaxpr", "fun_jaxpr"))
            return self.evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
        if name == "call_hi_primitive":  # One of JAX 0.12 until it is lowered, as searchsorted is.
            made = jax.make_jaxpr(functools.partial(equation.primitive.to_lojax, **params))(*operands)
            return self.evaluate(made.jaxpr, made.consts, operands)
        if name == "scan":
            return self.scan(params, operands)
        if name == "while":
            return self.loop(params, operands)
        if name == "cond":
            branches = [self.inner(b) for b in params["branches"]]
            return lax.switch(operands[0], branches, self.next_seed(), *operands[1:])
        self.count += 1
        if name == "sort" and not params["is_stable"] and len(operands) > 1:
            operands = self.shuffled(operands, params["dimension"])[0]
        if name == "dynamic_update_slice":  # XLA for a CPU writes in place, at times before it has read all of that.
            never = self.seed == jnp.uint32(0xFFFFFFFF)
            operands = [jnp.where(never, jnp.zeros_like(operands[0]), operands[0]), *operands[1:]]
        if name == "reduce":
            operands = self.no_numbers_anywhere(equation, operands)
        if name == "top_k":  # By their bits: a NaN is the largest or the smallest, as its sign is.
            operands = [self.signed(o) for o in operands]
        if name == "bitcast_convert_type":
            operands = [self.any_nan(o) for o in operands]
        if name == "approx_top_k":
            return self.approximate(equation, operands)
        if name in ("reduce_sum", "reduce_prod") and jnp.issubdtype(operands[0].dtype, jnp.inexact):
            for axis in params["axes"]:  # A product may overflow on its way to a 0, or not, as the order is.
                operands = self.shuffled(operands, axis)[0]
        n = _terms(name, equation)
        if name in SUMS:
            operands = [self.moved(o, 1 + math.isqrt(n), short=True) for o in operands]
        elif name not in EXACT and name not in CORRECT:
            operands = [self.moved(o, BEFORE.get(name, 1)) for o in operands]
        results = self.bind(equation, operands, wide)
        if name == "conv_general_dilated" and any(map(any, params["padding"])):
            results = [self.padded_or_not(equation, operands, results[0])]
        if name in ("div", "rem") and jnp.issubdtype(results[0].dtype, jnp.integer):
            anything = self.hash(results[0].shape).astype(results[0].dtype)  # XLA at times takes x / x for 1.
            results = [jnp.where(operands[1] == 0, anything, results[0])]
        if name in OF_LOGARITHMS:
            results = [self.by_exponent(r, operands) for r in results]
        if name == "reduce":
            results = self.one_by_one(equation, operands, results)
        if name in ("cumsum", "cumprod") and jnp.issubdtype(operands[0].dtype, jnp.inexact):
            results = [self.in_pieces(equation, operands[0], results[0])]
        if name in ("max", "min"):
            results = [self.of_nans(r, jnp.isnan(operands[0]) | jnp.isnan(operands[1])) for r in results]
        if name in ("reduce_max", "reduce_min"):
            results = [self.of_nans(r, jnp.isnan(operands[0]).any(params["axes"])) for r in results]
        if name in EXACT:
            return [self.signed(r) for r in results] if name in EXTREMES else results
        many = MANY | IN_64_BITS if results and results[0].dtype == jnp.float64 else MANY
        amount = 1 if name in CORRECT else 2 if name in SUMS else many.get(name, USUAL)
        exact = name in CORRECT or name in SUMS
        return [self.signed(self.moved(r, amount, short=exact)) for r in results]

    def bind(self, equation: Any, operands: list[Any], wide: bool) -> list[Any]:
        halves = [v.aval.dtype in HALVES for v in equation.outvars]
        params = dict(equation.params)
        if wide and any(halves):
            operands = [o.astype(jnp.float32) if getattr(o, "dtype", None) in HALVES else o for o in operands]
            if "new_dtype" in params:
                params["new_dtype"] = jnp.dtype(jnp.float32)
        elif wide:
            operands = [
                o if equation.primitive.name == "convert_element_type" else _narrow(o, a.aval)
                for o, a in zip(operands, equation.invars, strict=True)
            ]
        with equation.ctx.manager:
            result = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
        results = list(result) if equation.primitive.multiple_results else [result]
        if wide and any(halves):
            rounding = (self.hash(()) & 1) == 0
            results = [
                jnp.where(rounding, _narrow(r, v.aval).astype(r.dtype), r)
                for r, v in zip(results, equation.outvars, strict=True)
            ]
        return results

    def inner(self, closed: Any) -> Callable[..., list[Any]]:
        """A jaxpr as a function of a seed of its own and its arguments."""

        def run(seed: Any, *arguments: Any) -> list[Any]:
            return _Run(seed, self.excess).evaluate(closed.jaxpr, closed.consts, arguments)

        return run

    def next_seed(self) -> Any:
        self.count += 1
        return following(self.seed, self.count)

    def scan(self, params: Any, operands: list[Any]) -> list[Any]:
        consts, carry = _constants_and_carry(params, len(operands))
        body = self.inner(params["jaxpr"])

        def step(state: Any, rows: Any) -> Any:
            seed, *values = state
            results = body(seed, *operands[:consts], *values, *rows)
            return (following(seed, 7), *results[:carry]), results[carry:]

        start = (self.next_seed(), *operands[consts : consts + carry])
        (_, *last), stacked = lax.scan(step, start, operands[consts + carry :], params["length"], params["reverse"])
        return [*last, *stacked]

    def loop(self, params: Any, operands: list[Any]) -> list[Any]:
        of_test, of_body = params["cond_nconsts"], params["body_nconsts"]
        body = self.inner(params["body_jaxpr"])
        test = params["cond_jaxpr"]
        constants, rest = operands[of_test : of_test + of_body], operands[of_test + of_body :]

        def each(state: Any) -> Any:
            return jaxpr_as_fun(test)(*operands[:of_test], *state[1:])[0]

        def step(state: Any) -> Any:
            seed, *values = state
            on, found = each(state), body(seed, *constants, *values)
            if on.ndim:  # Under vmap each row goes on by itself.
                found = [
                    jnp.where(jnp.expand_dims(on, range(on.ndim, f.ndim)), f, v)
                    for f, v in zip(found, values, strict=True)
                ]
            return (following(seed, 7), *found)

        def goes(state: Any) -> Any:
            return jnp.any(each(state))

        return list(lax.while_loop(goes, step, (self.next_seed(), *rest))[1:])

    # -- noise

    def shuffled(self, operands: list[Any], dimension: int) -> tuple[list[Any], Any]:
        """In another order along a dimension, which an unstable sort may make of equal keys, and any sum of its terms.
        And where each was."""
        order = jnp.argsort(self.hash((operands[0].shape[dimension],)))
        order = jnp.where(self.seed == 0, jnp.arange(order.size), order)
        return [jnp.take(o, order, axis=dimension) for o in operands], order

    def approximate(self, equation: Any, operands: list[Any]) -> list[Any]:
        """``approx_max_k``, which takes equal values in any order: in a part of the runs as a stable sort has them."""
        axis, k = equation.params["reduction_dimension"], equation.params["k"]
        (moved,), order = self.shuffled(operands, axis)
        found, positions = equation.primitive.bind(moved, **equation.params)
        positions = order[positions].astype(positions.dtype)
        if found.shape[axis] != k:
            return [found, positions]
        keys = jnp.moveaxis(operands[0] if equation.params["is_max_k"] else -operands[0], axis, -1)
        first = jnp.moveaxis(lax.top_k(keys, k)[1], -1, axis)
        found = jnp.where(self.seed % 4 == 1, jnp.take_along_axis(operands[0], first, axis), found)
        positions = jnp.where(self.seed % 4 == 1, first.astype(positions.dtype), positions)
        # Where one is no number, a comparison with it is false both ways, and no order is right.
        unknown = jnp.isnan(operands[0]).any(axis, keepdims=True) & (self.seed % 4 > 1)
        found = jnp.where(unknown, jnp.where(self.seed % 4 == 2, jnp.nan, 0.0).astype(found.dtype), found)
        anywhere = (self.hash(positions.shape) % jnp.uint32(operands[0].shape[axis])).astype(positions.dtype)
        positions = jnp.where(unknown, jnp.where(self.seed % 4 == 2, -1, anywhere), positions)
        return [found, positions]

    def padded_or_not(self, equation: Any, operands: list[Any], result: Any) -> Any:
        """Return a convolution as it is, or in a part of the runs as a sum over its padding too: XLA multiplies weights
        there by zeros or leaves them out, and where one is infinite the first is no number."""
        finite = functools.reduce(jnp.logical_and, (jnp.isfinite(o).all() for o in operands))
        unlike = (self.seed % 2 == 1) & ~finite
        return jnp.where(unlike & ~jnp.isfinite(result), jnp.nan, result).astype(result.dtype)

    def no_numbers_anywhere(self, equation: Any, operands: list[Any]) -> list[Any]:
        """A reduction's operands in another order, in a part of the runs, where some are no numbers: no function of
        theirs that compares is associative."""
        half = len(operands) // 2
        unknown = sum(jnp.isnan(o).sum() for o in operands[:half] if jnp.issubdtype(o.dtype, jnp.inexact))
        rows = operands[:half]
        for axis in equation.params["dimensions"]:
            rows = self.shuffled(rows, axis)[0]
        turned = (jnp.asarray(unknown) > 0) & (self.seed % 4 == 3)
        return [*(jnp.where(turned, r, o) for r, o in zip(rows, operands, strict=False)), *operands[half:]]

    def one_by_one(self, equation: Any, operands: list[Any], results: list[Any]) -> list[Any]:
        """A reduction in which each initial value counts once, in a part of the runs: XLA cuts long rows in pieces that
        all start from it."""
        half, axes, combine = len(operands) // 2, equation.params["dimensions"], equation.params["jaxpr"]
        shape = results[0].shape
        front = [jnp.moveaxis(o, axes, range(len(axes))) for o in operands[:half]]
        rows = [o.reshape(math.prod(o.shape[: len(axes)]), math.prod(shape)) for o in front]
        still = _Run(jnp.uint32(0), False)
        combined = jax.vmap(lambda *values: tuple(still.evaluate(combine.jaxpr, combine.consts, values)))
        start = tuple(jnp.broadcast_to(i, rows[0].shape[1:]) for i in operands[half:])
        found, _ = lax.scan(lambda carry, row: (combined(*carry, *row), None), start, tuple(rows))
        return [jnp.where(self.seed % 4 == 1, f.reshape(shape), r) for f, r in zip(found, results, strict=True)]

    def in_pieces(self, equation: Any, operand: Any, result: Any) -> Any:
        """A running sum or product, in a part of the runs joined from those of pieces: one of these may overflow where
        none from the start does, and infinity times 0 is NaN. In another part it is computed step by step."""
        if not result.size:
            return result
        total = lax.cumsum if equation.primitive.name == "cumsum" else lax.cumprod
        joined = jnp.add if equation.primitive.name == "cumsum" else jnp.multiply
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        values = jnp.moveaxis(lax.rev(operand, [axis]) if reverse else operand, axis, -1)
        length, neutral = values.shape[-1], jnp.asarray(total is lax.cumprod, values.dtype)
        for turn, piece in enumerate(PIECES):
            if piece >= length:
                break
            whole = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -length % piece)], constant_values=neutral)
            own = total(whole.reshape(*values.shape[:-1], -1, piece), axis=values.ndim)
            before = total(own[..., -1], axis=values.ndim - 1)[..., :-1, None]
            before = jnp.pad(before, [(0, 0)] * (values.ndim - 1) + [(1, 0), (0, 0)], constant_values=neutral)
            found = jnp.moveaxis(joined(before, own).reshape(whole.shape)[..., :length], -1, axis)
            found = (lax.rev(found, [axis]) if reverse else found).astype(result.dtype)
            result = jnp.where(self.seed % (2 * len(PIECES)) == 2 * turn + 1, found, result)

        def step(before: Any, value: Any) -> tuple[Any, Any]:
            after = joined(before, value).astype(values.dtype)
            return after, after

        # And one by one: a product that starts at 0 stays there.
        found = lax.scan(step, jnp.full_like(values[..., 0], neutral), jnp.moveaxis(values, -1, 0))[1]
        found = jnp.moveaxis(found, 0, axis)
        found = (lax.rev(found, [axis]) if reverse else found).astype(result.dtype)
        return jnp.where(self.seed % (2 * len(PIECES)) == 2, found, result)

    def hash(self, shape: tuple[int, ...]) -> Any:
        """Random 32 bits for each element."""
        self.count += 1
        return hashed(self.seed, np.uint32(self.count), shape=shape)

    def moved(self, x: Any, amount: int, *, short: bool = False) -> Any:
        """Moved by up to ``amount`` units in the last place; ``short`` leaves short binary fractions alone."""
        if not isinstance(x, jax.Array) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x  # A number of the program's own text is what it is.
        if not jnp.issubdtype(x.dtype, jnp.inexact) or jnp.finfo(x.dtype).bits < 16:
            return x
        self.count += 1
        return moved(x, self.seed, np.uint32(self.count), amount=amount, short=short)

    def by_exponent(self, x: Any, operands: Sequence[Any]) -> Any:
        """Moved by the roundings of exponents as large as the operands times their logarithms."""
        size = sum(jnp.abs(o) * jnp.log(2 + jnp.abs(o)) for o in operands)
        share = self.hash(x.shape).astype(x.dtype) / jnp.asarray(2**31, x.dtype) - 1
        changed = x * (1 + jnp.minimum(size * jnp.finfo(x.dtype).eps, 1) * share).astype(x.dtype)
        return jnp.where((self.seed == 0) | ~jnp.isfinite(changed), x, changed)

    def of_nans(self, x: Any, nan: Any) -> Any:
        """NaN where an operand is, as JAX has it, in a part of the runs: XLA for a CPU takes the other one at times."""
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.where(nan & (self.seed % 4 == 1), jnp.full_like(x, jnp.nan), x)

    def raised(self, x: Any) -> Any:
        """Subnormal numbers as the smallest normal ones, in a part of the runs: XLA for a CPU takes them for 0."""
        if not isinstance(x, jax.Array) or not jnp.issubdtype(x.dtype, jnp.floating) or jnp.finfo(x.dtype).bits < 16:
            return x
        bits, sign = bits_of(x)
        normal = lax.bitcast_convert_type(jnp.asarray(jnp.finfo(x.dtype).smallest_normal, x.dtype), bits.dtype)
        low = bits & ~sign
        raised = lax.bitcast_convert_type((bits & sign) | normal, x.dtype)
        return jnp.where((low > 0) & (low < normal) & (self.seed % 8 == 5), raised, x)

    def signed(self, x: Any) -> Any:
        """Zeros and NaNs of either sign, in a part of the runs."""
        if not isinstance(x, jax.Array) or not jnp.issubdtype(x.dtype, jnp.floating) or jnp.finfo(x.dtype).bits < 16:
            return x
        turn = ((x == 0) & (self.seed % 4 == 3)) | (jnp.isnan(x) & (self.seed % 8 == 2))
        bits, sign = bits_of(x)
        plus, minus, turned = (lax.bitcast_convert_type(b, x.dtype) for b in (bits & ~sign, bits | sign, bits ^ sign))
        x = jnp.where(turn & (self.hash(x.shape) % 2 == 1), turned, x)  # Arithmetic need not keep a NaN's sign.
        return jnp.where(jnp.isnan(x) & (self.seed % 8 > 5), jnp.where(self.seed % 8 == 6, plus, minus), x)

    def any_nan(self, x: Any) -> Any:
        """NaNs of other bits, in a part of the runs: which one arithmetic makes is nobody's promise."""
        if not isinstance(x, jax.Array) or not jnp.issubdtype(x.dtype, jnp.floating) or jnp.finfo(x.dtype).bits < 16:
            return x
        bits, _ = bits_of(x)
        below = (jnp.asarray(1, bits.dtype) << jnp.asarray(jnp.finfo(x.dtype).nmant - 1, bits.dtype)) - 1
        other = lax.bitcast_convert_type(bits & ~below | self.hash(x.shape).astype(bits.dtype) & below, x.dtype)
        return jnp.where(jnp.isnan(x) & (self.seed % 4 == 2), other, x)


def _constants_and_carry(params: Any, operands: int) -> tuple[int, int]:
    """How many of a scan's operands are each; jax 0.11 has them in a tree."""
    if "ft_in" not in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = (list(part) for part in params["ft_in"].update(range(operands)).unpack())
    return len(constants), len(carry)


def _terms(name: str, equation: Any) -> int:
    """How many values about add up to one of a sum's."""
    if name not in SUMS:
        return 1
    sizes = [math.prod(getattr(v.aval, "shape", ())) for v in equation.invars]
    out = max(math.prod(equation.outvars[0].aval.shape), 1)
    return min(max([1, *sizes]), max(max(sizes, default=1) // out, 8) if name.startswith("reduce") else 64) + 1


def _narrow(x: Any, aval: Any) -> Any:
    """A value in the type that it has in the program."""
    if getattr(aval, "dtype", None) in HALVES and hasattr(x, "dtype") and x.dtype != aval.dtype:
        return x.astype(aval.dtype)
    return x
