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
os.environ["JAX_STITCH_LOG"] = "off"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="go on with that one of the seed's trials")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts there, now and then")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    from tests.faults import record
    from tests.faults.trial import Ground, trial_of

    command = f"python -m tests.faults --count {wanted.count} --seed {wanted.seed} --first {wanted.first}"
    start, wrong = time.monotonic(), list[str]()
    met, places = collections.Counter[str](), collections.Counter[str]()
    with tempfile.TemporaryDirectory() as root:
        ground = Ground(Path(root))
        for done in range(1, wanted.count + 1):
            number = wanted.seed * 1_000_000 + wanted.first + done - 1
            trial = trial_of(number)
            if found := ground.held(trial):
                wrong.append(f"{number}: {trial}: {'; '.join(found)}")
                print(wrong[-1], flush=True)
            met[trial.fault.call] += trial.fault.struck
            places[trial.place] += trial.fault.struck
            if done % 25 == 0 or done == wanted.count:
                counts = {"trials": done, "met their fault": met.total(), "wrong": wrong}
                seconds = round(time.monotonic() - start)
                figures = {"seed": wanted.seed, **counts, "met": dict(met), "places": dict(places), "seconds": seconds}
                record.keep(wanted.json, f"faults, seed {wanted.seed} from {wanted.first}", command, figures)
    of_each = ", ".join(f"{call} {count}" for call, count in sorted(met.items()))
    print(f"{wanted.count} trials, {met.total()} met their fault ({of_each}), {len(wrong)} wrong, ", end="")
    print(f"{time.monotonic() - start:.0f} s")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
