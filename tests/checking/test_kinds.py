"""Each kind of kernel in the checking mode: sorts of rows, windows and their gradients, scans, random bits, choices,
rows taken by index, products of small matrices, values kept for a row, loops.

At small sizes in one type of three by default; slow, at sizes that users have and in all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.checking import Checked, check, check_function, function
from jax_stitch.emit import KernelSource
from jax_stitch.graph import TensorType
from jax_stitch.inspect.report.accuracy import agreement, reference
from jax_stitch.pipeline import Stitched
from tests.fusion import forced

H200 = forced.device("h200")
DTYPES = ("float32", "bfloat16", "float16")
Shape = tuple[int, ...]


def ordered(x):
    return jnp.sort(x, axis=1) * 2, jnp.argsort(-x, axis=1)


def ordered_columns(x):
    return jnp.sort(x, axis=0)


def best(x):
    scores, at = lax.sort((-x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), num_keys=1)
    return jax.nn.softmax(-scores[:, :5], axis=-1), at[:, :5], jnp.take_along_axis(x * 2, at[:, :5], axis=1)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def average_pool(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9


def local_response(x):
    squares = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), "SAME")
    return x * lax.rsqrt(1 + squares * 1e-2)


def gradient_of(f):
    def gradient(x):
        return jax.grad(lambda x: jnp.sum(jnp.sin(f(x)).astype(jnp.promote_types(x.dtype, jnp.float32))))(x)

    return gradient


def scanned(x):
    return jnp.cumsum(jax.nn.softmax(x, axis=1), axis=1), lax.cummax(x, axis=0)


def dropped(x):
    """Threefry."""
    mask = jax.random.bernoulli(jax.random.key(3), np.float32(0.9), x.shape)
    kept = jnp.where(mask, x / 0.9, 0)
    return kept - kept.max(-1, keepdims=True)


def chosen(x):
    return jnp.argmax(x, axis=1), jnp.argmin(x, axis=0), x.max(1)


def looked_up(x):
    rows = (jnp.arange(2 * x.shape[0]) * 7) % x.shape[0]
    return jax.nn.softmax(x[rows] * 2, axis=-1)


def normalised(x):
    """Rows whose places other threads read, beside column sums."""
    y = jax.nn.softmax(x, axis=1)
    s = y.reshape(-1, 4, x.shape[1]).sum(1)
    return s - s[:, ::-1] * 3, s.max(1), (y * x).sum(0)


def across(x):
    """Column statistics, what is made of them with the rows, and of that columns again."""
    y = (x - x.mean(0)) / (1 + x.std(0))
    return y, (y * x).sum(0), y.max(1)


def of_small_matrices(x):
    y = x.reshape(-1, 4, 4)
    return jnp.tanh(jnp.einsum("bij,bjk->bik", y, y)) @ jnp.swapaxes(y, -1, -2)


def stepped(x):
    def step(carry, _):
        carry = jnp.sin(carry) + x * 0.5
        return carry, carry.sum(-1)

    return lax.scan(step, x, None, length=6)


IMAGES: tuple[Shape, Shape] = (2, 7, 9, 6), (2, 28, 28, 32)
ROWS: tuple[Shape, Shape] = (8, 70), (16, 2048)


@dataclass(frozen=True)
class Case:
    """A function of one array, at a small and a usual size."""

    function: Callable[..., Any]
    shapes: tuple[Shape, Shape]
    marks: tuple[str, ...]
    """Of the text of its kernels: what makes it this kind."""


CASES = {
    "sorts of rows": Case(ordered, ROWS, ("ST_SORT(",)),
    "sorts of columns": Case(ordered_columns, ((70, 6), (1024, 40)), ("ST_SORT(",)),
    "the first of sorted rows": Case(best, ((7, 130), (8, 8192)), ("ST_SORT(",)),
    "largest of windows": Case(max_pool, IMAGES, ()),
    "sums of windows": Case(average_pool, IMAGES, ()),
    "windows of channels": Case(local_response, IMAGES, ()),
    "gradient of largest of windows": Case(gradient_of(max_pool), IMAGES, ()),
    "gradient of sums of windows": Case(gradient_of(average_pool), IMAGES, ()),
    "gradient of windows of channels": Case(gradient_of(local_response), IMAGES, ()),
    "scans": Case(scanned, ROWS, ("ST_SCAN(",)),
    "random bits": Case(dropped, ROWS, ()),
    "choices": Case(chosen, ((16, 2048), (300, 1000)), ("ST_REDUCE",)),
    "rows by index": Case(looked_up, ((9, 70), (500, 1000)), ()),
    "kept for a row": Case(normalised, ((8, 50), (1024, 300)), ("ST_SHARED",)),
    "phases": Case(across, ((3000, 40), (3000, 130)), ("ST_GRID_BARRIER",)),
    "small matrices": Case(of_small_matrices, ((6, 16), (2000, 16)), ()),
    "loops": Case(stepped, ((4, 33), (64, 256)), ()),
}


def cases() -> list[Any]:
    """(kind, 0 or 1 for its size, dtype)."""
    found = []
    for number, (name, case) in enumerate(CASES.items()):
        for size, shape in enumerate(case.shapes):
            for dtype in DTYPES:
                slow = size or dtype != DTYPES[number % 3]
                label = f"{name}-{'x'.join(map(str, shape))}-{dtype}".replace(" ", "_").replace(",", "")
                found.append(pytest.param(name, size, dtype, id=label, marks=[pytest.mark.slow] if slow else []))
    return found


def left_to_xla(made: Stitched) -> list[str]:
    """Operations on more than a few elements that are in no kernel."""
    taken = {i for kernel in made.plan.kernels for p in kernel for i in p.nodes | p.copies}
    large = [n for n in made.plan.graph.nodes if isinstance(n.type, TensorType) and n.type.size > 64]
    return [n.name for n in large if n.id not in taken and n.op not in ("parameter", "constant", "iota", "broadcast")]


def backwards(source: KernelSource, arrays: Sequence[Any]) -> Checked:
    return check(source, arrays, range(source.grid)[::-1])


@pytest.mark.parametrize(("name", "size", "dtype"), cases())
def test_nothing_is_found_and_results_are_right(name: str, size: int, dtype: str) -> None:
    """Races, banks, misaligned vectors, places that nobody writes; an error of more than twice XLA's; a result that
    depends on which block comes first.
    """
    case = CASES[name]
    x = jnp.asarray(np.random.default_rng(0).standard_normal(case.shapes[size]), dtype)
    made = forced.stitched(forced.hlo_of(case.function, x), H200)
    assert made.kernels and not left_to_xla(made)
    assert all(any(mark in k.source.text for k in made.kernels) for mark in case.marks)
    checked = check_function(made, [x])
    assert not checked.faulty, str(checked)
    plain, exact = (jax.tree.leaves(r) for r in (jax.jit(case.function)(x), reference(case.function, (x,))))
    assert [str(leaf) for leaf in agreement(list(checked.results), plain, exact) if not leaf.agrees] == []
    with mock.patch.object(function, "check", backwards):
        again = check_function(made, [x])
    assert not again.faulty, str(again)
    for a, b in zip(checked.results, again.results, strict=True):
        assert a.tobytes() == b.tobytes()
