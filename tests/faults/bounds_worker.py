"""``python -m tests.faults.bounds_worker KIND CASE SIZE``: one program that is large in one way, in this process.
Prints what it took, as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from tests.faults import maker

Jit = Callable[[Callable[..., Any]], Any]
Program = tuple[Any, Sequence[Any]]
PATIENCE = 200.0
"""Seconds that the background may take; what is not done by then is left out of the figures."""
MOST_CALLS = 60


def operations(jit: Jit, count: int) -> Program:
    """So many operations, in blocks of 20 like a network's."""

    def fun(x: jax.Array) -> jax.Array:
        for n in range(count // 20):
            y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
            z = jnp.tanh(y * (1.0 + n / count)) + jnp.abs(x) * 0.5 - y * y * 0.25
            x = jnp.maximum(z, y - 1.0) + jnp.minimum(x, 2.0) * 0.125
        return x

    return jit(fun), [np.ones((8, 64), np.float32)]


def arguments(jit: Jit, count: int) -> Program:
    """So many arguments."""

    def fun(*xs: jax.Array) -> jax.Array:
        return sum((jnp.tanh(x) * (n + 1) for n, x in enumerate(xs)), jnp.zeros(16))

    return jit(fun), [np.full(16, 0.1, np.float32)] * count


def outputs(jit: Jit, count: int) -> Program:
    """So many results."""

    def fun(x: jax.Array) -> list[jax.Array]:
        return [jnp.tanh(x * (n + 1)) - x.mean(-1, keepdims=True) for n in range(count)]

    return jit(fun), [np.ones((8, 64), np.float32)]


def nesting(jit: Jit, depth: int) -> Program:
    """Functions in functions, each under ``jit``."""

    def inside(level: int) -> Any:
        if level == 0:
            return jit(lambda x: jax.nn.softmax(x, -1))
        inner = inside(level - 1)
        return jit(lambda x: jnp.tanh(inner(x) * 1.5) + x.mean(-1, keepdims=True))

    return inside(depth), [np.ones((8, 64), np.float32)]


def constant(jit: Jit, megabytes: int) -> Program:
    """An array of so many megabytes in the function itself."""
    held = np.random.default_rng(0).standard_normal((megabytes << 20) // 4).astype(np.float32).reshape(-1, 1024)

    def fun(x: jax.Array) -> jax.Array:
        y = held * x
        return jnp.tanh(y - y.mean(-1, keepdims=True)).sum(0)

    return jit(fun), [np.ones(1024, np.float32)]


def arrays(jit: Jit, megabytes: int) -> Program:
    """An argument and a result of so many megabytes."""

    def fun(x: jax.Array) -> jax.Array:
        return jnp.tanh(x - x.mean(-1, keepdims=True)) * 2.0

    return jit(fun), [jnp.ones(((megabytes << 20) // 4096, 1024), np.float32)]


CASES: dict[str, Callable[[Jit, int], Program]] = {
    "operations": operations,
    "arguments": arguments,
    "outputs": outputs,
    "nesting": nesting,
    "constant": constant,
    "arrays": arrays,
}


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def summed(results: Any) -> list[float]:
    """Of each result one number: whole ones would be as large as what is measured."""
    return [float(jnp.sum(r, dtype=jnp.float32)) for r in jax.tree.leaves(results)[:8]]


def main(kind: str, case: str, size: int) -> None:
    maker.install()
    warnings.simplefilter("ignore")
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(3, np.float32)))  # What JAX itself takes to start
    jit: Jit = jax.jit if kind == "jit" else lambda fun: stitch_jit(fun, mode="auto")
    function, args = CASES[case](jit, size)
    start, spent = time.perf_counter(), processor_seconds()
    result = jax.block_until_ready(function(*args))
    found: dict[str, Any] = {"first": time.perf_counter() - start, "first_cpu": processor_seconds() - spent}
    first = summed(result)
    del result
    said = ""
    if kind == "auto":
        done = function.wait(PATIENCE)
        for _ in range(MOST_CALLS):
            if function.status().decided:
                break
            jax.block_until_ready(function(*args))
        (program,) = function.status().programs
        said = f"{program.state}: {program.detail}" if done else f"not done after {PATIENCE:.0f} s"
    again = summed(function(*args))
    found |= {"said": said, "agrees": bool(np.allclose(first, again, rtol=1e-3, atol=1e-3))}
    found["whole"] = time.perf_counter() - start
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
