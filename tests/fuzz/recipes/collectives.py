"""Collectives, which mean something over the axis of a ``vmap``."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.draft import Draft
from tests.fuzz.recipes.arrays import Recipe


def over_axis(text: str | Callable[[Draft, int], str], rank: int = 1) -> Recipe:
    """A call inside a ``vmap`` over the first axis."""

    def recipe(d: Draft, v: str) -> str | None:
        shape = d.shape(v)
        if len(shape) < rank or not 1 <= shape[0] <= 40:
            return None
        body = text if isinstance(text, str) else text(d, shape[0])
        return f"jax.vmap(lambda a: {body}, axis_name='i')({v})"

    return recipe


def _ring(name: str) -> Callable[[Draft, int], str]:
    def text(d: Draft, n: int) -> str:
        order = d.rng.sample(range(n), n)
        perm = order if name == "pshuffle" else [(k, t) for k, t in enumerate(order) if d.rng.random() < 0.9]
        return f"lax.{name}(a, 'i', {perm})"

    return text


def _square(text: str) -> Recipe:
    """On a value whose first two dimensions are equal."""

    def recipe(d: Draft, v: str) -> str | None:
        n = d.rng.choice((1, 2, 3, 5))
        square = d.like(v, shape=(n, n, 2))
        return f"jax.vmap(lambda a: {text}, axis_name='i')({square})"

    return recipe


RECIPES: dict[str, Recipe] = {
    "lax.psum": over_axis("lax.psum(a, 'i') + a"),
    "lax.pmean": over_axis("a - lax.pmean(a, 'i')"),
    "lax.pmax": over_axis("lax.pmax(a, 'i')"),
    "lax.pmin": over_axis("lax.pmin(a, 'i')"),
    "lax.all_gather": over_axis("lax.all_gather(a, 'i', axis=0)"),
    "lax.axis_index": over_axis("a + lax.axis_index('i').astype(a.dtype)"),
    "lax.axis_size": over_axis("a * lax.axis_size('i')"),
    "lax.ppermute": over_axis(_ring("ppermute")),
    "lax.pshuffle": over_axis(_ring("pshuffle")),
    "lax.all_to_all": _square("lax.all_to_all(a, 'i', 0, 0)"),
    "lax.pswapaxes": _square("lax.pswapaxes(a, 'i', 0)"),
    "lax.psum_scatter": _square("lax.psum_scatter(a, 'i')"),
}
