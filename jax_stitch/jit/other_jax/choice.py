"""Which public functions there are on the JAX that is here: ours, or those that look at it first."""

from __future__ import annotations

import importlib
from typing import Any

from jax_stitch.util import jax_names

_HOMES = {
    "compare": "jax_stitch.inspect.report.compare",
    "plan_hlo": "jax_stitch.hlo",
    "stitch": "jax_stitch.api",
    "stitch_hlo": "jax_stitch.hlo",
    "stitch_jit": "jax_stitch.api",
}


def public(name: str) -> Any:
    """Return the public function of that name. Raises ``ImportError`` for a JAX that is too old."""
    if not obstacle_of(name) and jax_names.here().tested:
        return usual(name)
    from jax_stitch.jit.other_jax import later

    return getattr(later, name)


def usual(name: str) -> Any:
    """Return the public function as it is on versions that are tested."""
    return getattr(importlib.import_module(_HOMES[name]), name)


def obstacle_of(name: str) -> str:
    """Return which names of JAX's, missing or changed, keep us from what a public function does; empty if none."""
    files = (jax_names.HLO_FILES,) if name.endswith("_hlo") else ()
    return jax_names.obstacle((jax_names.EVERYTHING, *files))
