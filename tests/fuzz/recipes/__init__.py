"""How to call what a signature says too little about."""

from __future__ import annotations

from tests.fuzz.guesses import similar
from tests.fuzz.recipes import arrays, collectives, combine, composed, idioms, indexed, linear, loops, rows
from tests.fuzz.recipes.arrays import Recipe
from tests.fuzz.recipes.combine import ufunc_method
from tests.fuzz.recipes.composed import Composed

RECIPES: dict[str, Recipe] = {
    **arrays.RECIPES,
    **combine.RECIPES,
    **indexed.RECIPES,
    **linear.RECIPES,
    **collectives.RECIPES,
}
"""The text of a call by the operation's name."""

COMPOSED: dict[str, Composed] = {**composed.COMPOSED, **loops.COMPOSED, **rows.COMPOSED, **idioms.COMPOSED}
"""Operations that take functions, which are grown for them; and what programs often do with some operations."""

__all__ = ["COMPOSED", "RECIPES", "Composed", "Recipe", "similar", "ufunc_method"]
