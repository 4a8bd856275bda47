"""The worker processes of ``python -m bench small``: they make a program's functions, and time them round by round.

They run under jax 0.4.31 as well, where nothing is stitched.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.programs import PROGRAMS

Tell = Callable[[str], None]
SAMPLE_SECONDS = 0.015
"""The least total time of the calls of one function in a round."""
LEAST_CALLS = 3

_made: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def answer(request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return the answer to a request: its ``do`` is "prepare" or "round"."""
    tell(request["do"])
    return _prepared(request) if request["do"] == "prepare" else _round(request)


def _prepared(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make and call the functions of a program, and return their first-call seconds and errors to the reference."""
    _made.clear()
    fun, given = PROGRAMS[request["program"]].make()
    inside = request.get("inside", False)
    args = jax.tree_util.tree_map(lambda x: _placed(x, request["dtype"]), given)
    found: dict[str, Any] = {}
    for kind in request["kinds"]:
        function, status = _part(kind, fun) if inside else (_function(kind, fun), None)
        start = time.perf_counter()
        result = jax.block_until_ready(function(*args))
        found[f"{kind}_first"] = time.perf_counter() - start
        leaves = _leaves(result)
        if kind == "reference":
            np.savez(request["file"], *leaves)
            return found
        found[f"{kind}_error"] = _error(leaves, request["file"])
        if kind == "plain":
            found["moved_error"] = _moved_error(function, args, request["file"])
        if kind == "stitched":
            found |= _decided(status()) if status is not None else _dispatched(function, args)
        _made[kind] = function, args
    return found


def _leaves(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree_util.tree_leaves(result)]


def _moved_error(function: Any, args: tuple[Any, ...], file: str) -> float:
    """Return the largest error where each argument is replaced by its neighbouring floating-point number: the error
    that rounding causes in the program, whichever compiler is used.
    """

    def moved(x: Any, up: bool) -> Any:
        if not np.issubdtype(x.dtype, np.floating):
            return x
        side = np.arange(x.size).reshape(x.shape) % 2 == int(up)
        return jnp.asarray(np.nextafter(x, np.where(side, np.inf, -np.inf).astype(x.dtype)))

    neighbours = [jax.tree_util.tree_map(lambda x, up=up: moved(x, up), args) for up in (True, False)]
    return max(_error(_leaves(function(*a)), file) for a in neighbours)


def _placed(x: Any, dtype: str) -> Any:
    return jnp.asarray(x, dtype if np.issubdtype(np.asarray(x).dtype, np.floating) else None)


def _function(kind: str, fun: Callable[..., Any]) -> Any:
    if kind != "stitched":
        return jax.jit(lambda *args: fun(*args))  # A separate program each: ``jax.jit`` caches by function.
    from jax_stitch import stitch_jit

    return stitch_jit(fun, mode="now")


def _part(kind: str, fun: Callable[..., Any]) -> tuple[Any, Callable[[], Any] | None]:
    """Return a function that JAX compiles with ``fun`` as a part, in the default mode, and its ``status`` or None."""
    status = None
    if kind == "stitched":
        from jax_stitch import stitch_jit

        fun = stitch_jit(fun, mode="auto")  # The default of users; that of `bench` is "now".
        status = fun.status
    return jax.jit(lambda *args: jax.tree_util.tree_map(lambda x: x + 1, fun(*args))), status


def _decided(status: Any) -> dict[str, Any]:
    """Return the number of stitched kernels, the launches that they replace, the reason, and seconds to make them."""
    (program,) = status.programs
    return {
        "kernels": program.kernels,
        "replaced": program.replaced,
        "detail": program.detail,
        "planning": program.planning_seconds,
        "compiling": program.compiling_seconds,
    }


def _dispatched(function: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return the numbers of stitched kernels, of XLA's launches beside them, and of XLA's launches without them."""
    plan = function.plan(*args)
    return {
        "kernels": len(plan.kernels),
        "left": plan.launches - sum(kernel.launches for kernel in plan.kernels),
        "xla": plan.xla_launches,
    }


def _error(leaves: list[np.ndarray], file: str) -> float:
    """Return the largest difference to the reference, relative to the largest magnitude of each leaf."""
    with np.load(file) as kept:
        right = [kept[name] for name in kept.files]
    differences = [
        np.max(np.abs(a - b), initial=0.0) / max(np.max(np.abs(b), initial=0.0), 1e-30)
        for a, b in zip(leaves, right, strict=True)
    ]
    return float(max(differences))


def _round(request: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of a call of each kind: the median of its calls in this round."""
    return {kind: _sample(*_made[kind]) for kind in request["kinds"]}


def _sample(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    taken: list[float] = []
    end = time.perf_counter() + SAMPLE_SECONDS
    jax.block_until_ready(function(*args))
    while time.perf_counter() < end or len(taken) < LEAST_CALLS:
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
