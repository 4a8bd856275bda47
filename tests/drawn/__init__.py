"""Random JAX functions from the operations that a kernel can hold, with what their results may differ by.

Of every value the generator knows whether all implementations agree on it to the bit (integers, truth values, floats
that are short binary fractions), and if not, by how much two may differ at most: only values of the first kind are
compared, rounded or used as indices.
"""

from __future__ import annotations

from random import Random

from tests.drawn.elementwise import binary, bitcast, clamp, compare, convert, select, unary
from tests.drawn.generator import Generator, Operations
from tests.drawn.loops import loop
from tests.drawn.products import product, recurrence
from tests.drawn.reductions import normalise, reduce, reduce_several, scan
from tests.drawn.shapes import (
    broadcast,
    concatenate,
    cut,
    dynamic_slice,
    pad,
    reshape,
    reverse,
    take_along,
    take_rows,
    transpose,
)
from tests.drawn.sorts import place, scattering, sort
from tests.drawn.values import Program, differences

__all__ = ["Program", "differences", "program", "program_of"]

MAX_SIZE = 6000

STRAIGHT: Operations = (
    *[unary] * 4,
    *[binary] * 6,
    *[normalise] * 4,
    *[reduce] * 3,
    *[scan] * 2,
    *[reduce_several, compare, select, clamp, convert, convert, bitcast],
    *[broadcast, reshape, reshape, transpose, transpose, reverse, cut, concatenate, pad],
    *[take_rows, take_along, dynamic_slice],
)
LOOPS: Operations = (*STRAIGHT, *[loop] * 12)


def program(rng: Random, *, steps: int = 10, max_size: int = MAX_SIZE, loops: bool = False) -> Program:
    """A random function of about ``steps`` operations on arrays of up to ``max_size`` elements, with ``loops`` among
    them. Needs x64.
    """
    while True:
        made = Generator(rng, LOOPS if loops else STRAIGHT, STRAIGHT, max_size=max_size).program(steps)
        if made.outputs:
            return made


WITH_PRODUCTS: Operations = (*STRAIGHT, *[product] * 16)
MIXES: dict[str, tuple[Operations, Operations]] = {
    "rows": (STRAIGHT, STRAIGHT),
    "sorts": ((*STRAIGHT, *[sort] * 16), STRAIGHT),
    "scans": ((*STRAIGHT, *[scan] * 16), STRAIGHT),
    "places": ((*STRAIGHT, *[place] * 12), STRAIGHT),
    "normalised": ((*STRAIGHT, *[normalise] * 16), STRAIGHT),
    "loops": (LOOPS, STRAIGHT),
    "products": (WITH_PRODUCTS, STRAIGHT),
    "recurrences": ((*WITH_PRODUCTS, *[recurrence] * 24), WITH_PRODUCTS),
    "loops with products": ((*STRAIGHT, *[loop] * 12, *[recurrence] * 12), WITH_PRODUCTS),
    "scatters": ((*STRAIGHT, *[scattering] * 24), STRAIGHT),
}
"""Operations outside and inside of loops, by what is to be drawn often."""
SUMMED = ("f32", "f32", "f32", "f16", "bf16", "f64")
OF_SEVERAL_DIMENSIONS: dict[str, tuple[str, ...]] = {
    "products": SUMMED,
    "recurrences": SUMMED,
    "loops with products": (*SUMMED, "s32"),
    "normalised": SUMMED,
    "scatters": ("f32", "f32", "f64", "s32", "u32", "s8"),
}
"""Mixes whose operations need dimensions and element types: of these most arguments are."""


def program_of(rng: Random, mix: str, *, steps: int = 10, max_size: int = MAX_SIZE, ends: bool = False) -> Program:
    """A random function of one of the ``MIXES``; with ``ends``, loops whose data says when they end. Needs x64."""
    while True:
        grower = Generator(rng, *MIXES[mix], max_size=max_size)
        if mix in OF_SEVERAL_DIMENSIONS:
            grower.ranks, grower.types = (2, 2, 3, 3, 4), OF_SEVERAL_DIMENSIONS[mix]
        if ends:
            grower.loops = ("while",)
            grower.scalars = ("s32",)
        made = grower.program(steps)
        if made.outputs:
            return made
