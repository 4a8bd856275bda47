"""``python -m bench.gpu.correctness``: every workload, stitched, beside ``jax.jit`` and float64."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bench.gpu import pool
from bench.suites import cases
from bench.worker import Tell
from bench.workloads import ALL, WORKLOADS
from jax_stitch import stitch_jit
from jax_stitch.inspect.report.accuracy import NoReference, agreement, reference

SIZES = ("powers of two", "uneven")
"""Of each workload's two sizes for tests."""


# Else a GPU multiplies float32 in fewer bits where XLA finds that faster, in one program and not in the other.
@jax.default_matmul_precision("highest")
def faults(name: str, size: int, dtype: str, tell: Tell = lambda stage: None) -> list[str]:
    """What is wrong about a workload's results; empty where nothing is. Raises what keeps it from being stitched."""
    workload = ALL[name]
    # By the host, which compiles the many small programs of it sooner than a GPU's compiler does.
    with jax.default_device(jax.devices("cpu")[0]):
        function, args = workload.make(workload.test_sizes[size], jnp.dtype(dtype))
    args = jax.device_put(args, jax.devices()[0])
    tell("compiling with jax.jit")
    plain = jax.block_until_ready(jax.jit(function)(*args))
    try:
        exact = reference(function, args)
    except NoReference:
        exact = plain
    stitched = stitch_jit(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for call in ("first", "second"):  # A race, or a counter that is not back at zero, shows at the second.
            tell(f"in its {call} call")
            results = jax.block_until_ready(stitched(*args))
            if wrong := [str(leaf) for leaf in agreement(results, plain, exact) if not leaf.agrees]:
                return [f"at the {call} call: {leaf}" for leaf in wrong]
    return []


def answer(values: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """The verdict on one: the worker's side."""
    wrong = faults(values["name"], values["size"], values["dtype"], tell)
    jax.clear_caches()
    return {"verdict": "WRONG" if wrong else "well", "told": "; ".join(wrong[:2])}


def all_cases(only: Sequence[str] = ()) -> list[pool.Case]:
    """Every workload once, at its uneven size; then the other size, then bfloat16: the most telling first."""
    names = [c.workload.name for c in cases("all")]
    rounds = [(names, 1, "float32"), (names, 0, "float32"), ([n for n in names if n in WORKLOADS], 1, "bfloat16")]
    return [
        pool.Case(
            f"{name}, {SIZES[size]}, {dtype}",
            "bench.gpu.correctness",
            {"name": name, "size": size, "dtype": dtype},
        )
        for chosen, size, dtype in rounds
        for name in chosen
        if not only or name in only
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs them; the exit status is that of ``bench.gpu.pool`` for the first round: the others have the time left."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.correctness", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds in all (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: %(default)s)")
    options = parser.parse_args(argv)
    found = pool.run(all_cases(options.only), options.limit, options.budget, options.jobs, fresh=False)
    first = len(options.only) or len(cases("all"))
    print(f"{sum(f.verdict == 'well' for f in found[:first])} of {first} workloads are right at one size")
    print("\n".join(pool.summary(found)))
    bad = [f for f in found if f.verdict in pool.BAD]
    return pool.exit_status([*found[:first], *bad])


if __name__ == "__main__":
    sys.exit(main())
