"""``python -m tests.kernel --count 5000 --seed S``: random programs by XLA, the interpreter and the host's C++."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

import jax

from tests.fusion import forced
from tests.fusion.random_programs import Program, differences, program
from tests.kernel.agreement import interpreted

DEVICES = tuple(map(forced.device, ("cpu", "h200", "t4", "a100")))


def disagreements(seed: int, steps: int, host: bool) -> tuple[Program, list[str], int]:
    """A random program, where its kernels' results differ from XLA's, and how many kernels it has."""
    rng = Random(seed)
    with jax.enable_x64(True):
        made = program(rng, steps=steps)
        text = forced.hlo_of(made.fun, *made.args)
        target = rng.choice(DEVICES)
        kernels = forced.stitched(text, target, rng.choice((None, rng.randrange(100))))
        runs = {"the interpreter": interpreted(kernels, made.args)}
        if host:
            runs["C++ on the host"] = forced.run(kernels, made.args)
        wanted = jax.jit(made.fun)(*made.args)
        found: list[str] = []
        for name, results in runs.items():
            wrong = differences(made, results, wanted)
            if wrong and differences(made, results, made.fun(*made.args)):  # Else XLA is wrong.
                found += [f"seed {seed}, {target.name}, {name}: {line}" for line in wrong]
    return made, found, len(kernels.kernels)


def main() -> int:
    """The number of programs that disagree, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--host-every", type=int, default=10, help="each so many programs also as C++ on the host")
    options = parser.parse_args()
    start, kernels, bad = time.monotonic(), 0, 0
    for k in range(options.count):
        made, found, count = disagreements(options.seed + k, 6 + k % 10, k % options.host_every == 0)
        kernels += count
        if found:
            bad += 1
            print("\n".join([*found, repr(made)]), flush=True)
        if k % 100 == 99:
            taken = time.monotonic() - start
            print(f"{k + 1} programs, {kernels} kernels, {bad} disagree, {taken:.0f} s", flush=True)
    print(f"{options.count} programs, {kernels} kernels: {bad} disagree")
    return min(1, bad)


if __name__ == "__main__":
    sys.exit(main())
