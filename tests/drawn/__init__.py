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
from tests.drawn.values import Program, differences

__all__ = ["Program", "differences", "program"]

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
