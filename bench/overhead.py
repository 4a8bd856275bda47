"""``python -m bench.overhead``: what a call of a small cached function costs under ``stitch_jit``, beside ``jax.jit``.

``--state``: in the default mode after the verdict, or while the stitched program is made; or in ``mode="now"``.

Both are called in turn in one process, in blocks of calls whose order changes from round to round. A second
``jax.jit`` of the same function is measured in the same way: what it differs from the first is noise.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.turns import KINDS, Row, order, row_of
from jax_stitch import stitch_jit
from jax_stitch.jit.rebuilt import background

BARS = {"now": 1.05, "settled": 1.1, "making": 1.3}
"""By state, what a stitched call may cost of a call of ``jax.jit``."""


@dataclass(frozen=True, slots=True)
class Case:
    """A way to call a small function."""

    name: str
    make: Callable[[Callable[..., Any]], Callable[[], Any]]
    """From a jit to a call without arguments."""


def cases() -> list[Case]:
    """Functions so small that a call is mostly JAX's own work, by what there is to do for their arguments."""
    x, w = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4), jnp.ones(4)
    tree = {f"layer{n}": {"w": x, "b": w} for n in range(20)}

    def one(jit: Callable[..., Any]) -> Callable[[], Any]:
        jitted = jit(lambda x: x + 1)
        return lambda: jitted(x)

    def kernel(jit: Callable[..., Any]) -> Callable[[], Any]:
        jitted = jit(lambda x: jax.nn.softmax(x, -1))
        return lambda: jitted(x)

    def pytree(jit: Callable[..., Any]) -> Callable[[], Any]:
        jitted = jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0.5, tree))
        return lambda: jitted(tree)

    def static(jit: Callable[..., Any]) -> Callable[[], Any]:
        jitted = jit(lambda x, n, *, name: x * n, static_argnums=1, static_argnames="name")
        return lambda: jitted(x, 3, name="three")

    def scalars(jit: Callable[..., Any]) -> Callable[[], Any]:
        jitted = jit(lambda x, rate, step: x * rate + step)
        return lambda: jitted(x, 0.1, 3)

    def method(jit: Callable[..., Any]) -> Callable[[], Any]:
        class Model:
            @jit
            def forward(model: Any, x: Any) -> Any:
                return x * model.w

            def __init__(self) -> None:
                self.w = w

        jax.tree_util.register_pytree_node(Model, lambda m: ((m.w,), None), _unflatten(Model))
        model: Any = Model()
        return lambda: model.forward(x)

    makers = {
        "one operation": one,
        "one stitched kernel": kernel,
        "pytree of 40 arrays": pytree,
        "static arguments": static,
        "Python scalars": scalars,
        "method of a pytree": method,
    }
    return [Case(name, make) for name, make in makers.items()]


def _unflatten(cls: type) -> Callable[[None, Sequence[Any]], Any]:
    def unflatten(_: None, children: Sequence[Any]) -> Any:
        made: Any = object.__new__(cls)
        (made.w,) = children
        return made

    return unflatten


@dataclass(eq=False)
class _Held:
    """A job that keeps the background from all others: their programs are being made for as long."""

    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        self.over.wait()

    def abandon(self, forked: bool) -> None:
        self.over.set()


def measure(case: Case, rounds: int, calls: int, state: str = "now") -> Row:
    """Times one case; what it is made of is compiled first."""
    made: list[Any] = []

    def stitched(*args: Any, **kwargs: Any) -> Any:
        if not args:
            return functools.partial(stitched, **kwargs)
        made.append(stitch_jit(*args, **kwargs, mode="now" if state == "now" else "auto"))
        return made[-1]

    held = _Held()
    if state == "making":
        background.submit(held)
    functions = {"plain": case.make(jax.jit), "stitched": case.make(stitched), "again": case.make(jax.jit)}
    for function in functions.values():
        _block(function, calls)
    while state == "settled" and not (made[0].wait() and made[0].status().decided):
        _block(functions["stitched"], calls)
    try:
        return _measured(case, functions, rounds, calls)
    finally:
        held.over.set()


def _measured(case: Case, functions: dict[str, Callable[[], Any]], rounds: int, calls: int) -> Row:
    samples: dict[str, list[float]] = {kind: [] for kind in KINDS}
    gc.disable()
    try:
        for n in range(rounds):
            for kind in order(n):
                samples[kind].append(_block(functions[kind], calls))
    finally:
        gc.enable()
    return row_of(case.name, samples)


def _block(function: Callable[[], Any], calls: int) -> float:
    """Seconds per call of several, the last one waited for."""
    start = time.perf_counter()
    for _ in range(calls):
        result = function()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where a case costs more than the bar allows."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--state", choices=tuple(BARS), default="settled", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=100, help="calls in each round (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)
    bar = BARS[options.state]
    rows = [measure(case, options.rounds, options.calls, options.state) for case in cases()]

    table = Table(title=f"Microseconds a call, {jax.default_backend()}, jax {jax.__version__}")
    table.add_column("call")
    for column in ("jax.jit", "stitched", "ratio", "jax.jit again"):
        table.add_column(column, justify="right")
    for row in rows:
        colour = "green" if row.ratio <= bar else "red"
        table.add_row(
            row.name,
            f"{row.plain * 1e6:.1f}",
            f"{row.stitched * 1e6:.1f}",
            f"[{colour}]{row.ratio:.3f}[/]",
            f"{row.noise:.3f}",
        )
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    if options.json is not None:
        found = {
            "about": about("cpu"),
            "bar": bar,
            "state": options.state,
            "rounds": options.rounds,
            "calls": options.calls,
        }
        write_json(options.json, {**found, "rows": [asdict(row) for row in rows]})
    return 0 if all(row.ratio <= bar for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
