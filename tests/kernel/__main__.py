"""``python -m tests.kernel --patterns 5000 --seed S``: random patterns by XLA, the interpreter and the host's C++."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import jax

from jax_stitch.ir.nest import Nest
from jax_stitch.pipeline import Stitched
from tests.drawn import Program, differences, program
from tests.fusion import forced
from tests.kernel.agreement import interpreted

DEVICES = tuple(map(forced.device, ("cpu", "h200", "t4", "a100")))


def kinds(made: Stitched) -> Iterator[str]:
    """What each pattern of a program's kernels is."""
    for kernel in made.kernels:
        for part in kernel.scheduled.parts:
            if part.team is not None:
                yield "straight code" if part.team.loop.trips == 1 else "loop in teams"
            else:
                yield "loop in threads" if isinstance(part.pattern.loop, Nest) else "rows"


def disagreements(seed: int, *, host: bool = True) -> tuple[Program, list[str], Counter[str]]:
    """A random program, where its kernels' results differ from XLA's, and its patterns by kind."""
    rng = Random(seed)
    with jax.enable_x64(True):
        made = program(rng, steps=6 + seed % 10, loops=rng.random() < 0.6)
        text = forced.hlo_of(made.fun, *made.args)
        target = rng.choice(DEVICES)
        order = rng.choice((None, rng.randrange(100)))
        kernels = forced.stitched(text, target, order, straight=rng.random() < 0.5)
        runs = {"the interpreter": interpreted(kernels, made.args)}
        if host:
            runs["C++ on the host"] = forced.run(kernels, made.args)
        wanted = jax.jit(made.fun)(*made.args)
        found: list[str] = []
        for name, results in runs.items():
            wrong = differences(made, results, wanted)
            if wrong and differences(made, results, made.fun(*made.args)):  # Else XLA is wrong.
                found += [f"seed {seed}, {target.name}, {name}: {line}" for line in wrong]
    return made, found, Counter(kinds(kernels))


def main() -> int:
    """The number of programs that disagree, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patterns", type=int, default=5000, help="until so many were compared")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    options = parser.parse_args()
    start, bad, seed, compared = time.monotonic(), 0, options.seed, Counter[str]()
    while compared.total() < options.patterns:
        try:
            made, found, of_kind = disagreements(seed)
        except Exception as failure:
            print(f"seed {seed}: {type(failure).__name__}: {failure}", flush=True)
            bad += 1
        else:
            compared += of_kind
            if found:
                bad += 1
                print("\n".join([*found, repr(made)]), flush=True)
        seed += 1
        if seed % 100 == 0:
            jax.clear_caches()
            print(f"{seed}: {dict(compared)}, {bad} disagree, {time.monotonic() - start:.0f} s", flush=True)
    print(f"seeds {options.seed} to {seed - 1}: {dict(compared)}: {bad} disagree")
    return min(1, bad)


if __name__ == "__main__":
    sys.exit(main())
