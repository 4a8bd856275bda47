"""Which program a call runs, by the types of its arguments alone: quicker than asking JAX for its trace.

For functions of which some programs are stitched and others not; forgotten whenever one gets another state. A route may
be wrong where options of JAX have changed since: then the program that it leads to is of another trace, and JAX asks
for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

_MOST = 256
"""Routes; static values may be new at every call."""


class Routes:
    """The jitted functions by the calls that run them."""

    def __init__(self, *, has_static: bool) -> None:
        self._has_static = has_static
        self._functions: dict[Hashable, Callable[..., Any]] = {}

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What a call is known to run."""
        try:
            return self._functions.get(self._key(args, kwargs))
        except (TypeError, ValueError):  # Something in it has no hash, or no structure.
            return None

    def add(self, args: Sequence[Any], kwargs: Mapping[str, Any], function: Callable[..., Any]) -> None:
        """Makes known what calls like this one run."""
        if len(self._functions) >= _MOST:
            self._functions = {}
        try:
            self._functions[self._key(args, kwargs)] = function
        except (TypeError, ValueError):
            return

    def clear(self) -> None:
        """Forgets all."""
        self._functions = {}

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable:
        leaves, tree = jax.tree.flatten((args, kwargs))
        return (tree, *[leaf.aval if isinstance(leaf, jax.Array) else self._type(leaf) for leaf in leaves])

    def _type(self, leaf: Any) -> Hashable:
        if isinstance(leaf, (np.ndarray, np.generic)):
            return leaf.shape, leaf.dtype
        if isinstance(leaf, (bool, int, float, complex)) and not self._has_static:
            return (type(leaf),)
        return type(leaf), leaf  # It may be static: then its value counts.
