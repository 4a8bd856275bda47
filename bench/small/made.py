"""What the programs share: arguments from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Made = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments, as NumPy arrays of float64 and integers."""


@dataclass(frozen=True)
class Program:
    """``make`` gives the function and its arguments; ``like`` says whose programs look like this."""

    name: str
    like: str
    make: Callable[[], Made]
    doubles: bool = False
    """True if the program is one of float64, whatever type is asked for."""


def normal(seed: int, *dims: int, scale: float = 1.0) -> Any:
    """Standard normal numbers times ``scale``."""
    return np.random.default_rng(seed).standard_normal(dims) * scale


def uniform(seed: int, low: float, high: float, *dims: int) -> Any:
    """Numbers from ``low`` to ``high``."""
    return np.random.default_rng(seed).uniform(low, high, dims)
