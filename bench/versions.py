"""``python -m bench.versions OLD.json NEW.json``: what two versions of JAX plan, beside each other, as Markdown.

Both files are of ``python -m bench run --device NAME``, of the same commit. Launches of stitched programs must not
become more; XLA's own may, and their fusions with them, so both stand in the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.files import Results, read
from bench.rows import Row
from bench.tables import bytes_ratio, markdown

PATH = Path("bench/results/jax_versions.md")


@dataclass(frozen=True, slots=True)
class Pair:
    """One workload under both versions."""

    old: Row
    new: Row

    @property
    def verdict(self) -> str:
        """Empty where nothing changed; in capitals what must not be."""
        if "failed" in (self.old.status, self.new.status):
            failed = self.old if self.old.status == "failed" else self.new
            return f"FAILED: {failed.reason}"
        old, new = self.old.stitched.launches, self.new.stitched.launches
        if old is None or new is None:
            return "NOT PLANNED"
        if new > old:
            return "MORE LAUNCHES"
        return "fewer launches" if new < old else ""


def pairs(old: Results, new: Results) -> list[Pair]:
    """The workloads that both files have, in the order of the first. Raises ``ValueError`` for another set."""
    found = {row.label: row for row in new.rows}
    if set(found) != {row.label for row in old.rows}:
        raise ValueError(f"{old.name} and {new.name} are of different workloads or sizes: run the same suite for both")
    return [Pair(row, found[row.label]) for row in old.rows]


def table(old: Results, new: Results) -> str:
    """Where and when, a sentence that counts, and a row for each workload."""
    found = pairs(old, new)
    versions = [str(results.about["packages"]["jax"]) for results in (old, new)]
    counts = {
        "the same number of launches": sum(not p.verdict for p in found),
        "fewer": sum(p.verdict == "fewer launches" for p in found),
        "more": sum(p.verdict == "MORE LAUNCHES" for p in found),
        "failed or not planned": sum(p.verdict.startswith(("FAILED", "NOT")) for p in found),
    }
    ran = "; ".join(
        f"jax {v} on Python {r.about['python']}, commit {str(r.about['commit'])[:7]}"
        for v, r in zip(versions, (old, new), strict=True)
    )
    header = ["workload"] + [f"{v}: {what}" for v in versions for what in ("XLA", "stitched", "bytes / bound")] + [""]
    rows = [
        [
            pair.old.label,
            *(
                text
                for row in (pair.old, pair.new)
                for text in (_count(row.jit.launches), _count(row.stitched.launches), bytes_ratio(row.stitched, row))
            ),
            pair.verdict,
        ]
        for pair in found
    ]
    lines = [
        f"# Planned launches under jax {versions[0]} and {versions[1]}",
        "",
        f"For {old.about['device']}, {old.about['options']['dtype']}, counted on what XLA's own compiler makes of both "
        f"programs: {ran}. "
        "Written by `python -m bench.versions` from two files of `python -m bench run`.",
        "",
        f"Of {len(found)} workloads under jax {versions[1]}: "
        + ", ".join(f"{n} {what}" for what, n in counts.items())
        + ".",
        "",
        markdown(header, rows, right=range(1, 7)),
    ]
    return "\n".join(lines) + "\n"


def _count(launches: int | None) -> str:
    return "-" if launches is None else f"{launches:,}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the table; the exit status is 1 where a workload has more launches under the second version, or failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=main.__doc__)
    parser.add_argument("old", type=Path, help="results under one version of JAX")
    parser.add_argument("new", type=Path, help="the same under another")
    parser.add_argument("--out", type=Path, default=PATH, metavar="FILE", help="(default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        old, new = read(options.old), read(options.new)
        text = table(old, new)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return int(any(p.verdict.isupper() or p.verdict.startswith("FAILED") for p in pairs(old, new)))


if __name__ == "__main__":
    sys.exit(main())
