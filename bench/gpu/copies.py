"""``python -m bench.gpu.copies RESULTS...``: bandwidth of each workload in per cent of a copy's, from result files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.files import read
from bench.tables import copy_share, markdown, share
from jax_stitch.util.formatting import format_bytes
from jax_stitch.util.timing import geometric_mean

PART = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Inputs and outputs counted once each, over the time; the exit status is 10 where no file has times and a copy's
    bandwidth."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.copies", description=main.__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="files of `python -m bench run`")
    options = parser.parse_args(argv)
    rows, shares = [], []
    for path in options.results:
        if not path.exists():
            print(f"{path} is not there: its suite was not run")
            continue
        results = read(path)
        bandwidth = results.about.get("copy_bytes_per_second")
        for row in results.rows:
            plain, stitched = copy_share(row.jit, row, bandwidth), copy_share(row.stitched, row, bandwidth)
            if plain is None or stitched is None or bandwidth is None:
                continue
            shares.append(stitched)
            rows.append([row.label, format_bytes(bandwidth) + "/s", share(plain), share(stitched)])
    if not rows:
        print("no times to compare with a copy")
        return PART
    print(markdown(("workload", "a copy", "jax.jit", "stitched"), rows, right=(1, 2, 3)))
    print(f"{len(rows)} workloads, stitched: {share(geometric_mean(shares))} of a copy in geometric mean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
