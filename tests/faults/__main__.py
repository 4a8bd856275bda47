"""``python -m tests.faults --count N --seed S``: so many injected faults, and what went wrong with each."""

from __future__ import annotations

import argparse
import collections
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    from tests.faults.trial import Ground, trial_of

    start, bad, struck = time.monotonic(), 0, collections.Counter[str]()
    with tempfile.TemporaryDirectory() as root:
        ground = Ground(Path(root))
        for n in range(wanted.seed * 1_000_000, wanted.seed * 1_000_000 + wanted.count):
            trial = trial_of(n)
            wrong = ground.held(trial)
            struck[trial.fault.call] += trial.fault.struck
            if wrong:
                bad += 1
                print(f"{n}: {trial}: {'; '.join(wrong)}", flush=True)
    met = ", ".join(f"{call} {count}" for call, count in sorted(struck.items()))
    print(f"{wanted.count} trials, {sum(struck.values())} met their fault ({met}), {bad} wrong, ", end="")
    print(f"{time.monotonic() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
