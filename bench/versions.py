"""``python -m bench.versions OLD.json NEW.json``: what two versions of JAX plan, beside each other, as Markdown.

Both files are of ``python -m bench run --device NAME``, of the same commit. Launches of stitched programs must not
become more; XLA's own may, and their fusions with them, so both stand in the table. With ``--keep`` both files have
some of the workloads, and the others' rows stay as they are in the table that is written over.
"""

from __future__ import annotations

import argparse
import re
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


def table(old: Results, new: Results, before: str = "") -> str:
    """Where and when, a sentence that counts, and a row for each workload; those of the table ``before`` that were not
    run have a star.
    """
    versions = [str(results.about["packages"]["jax"]) for results in (old, new)]
    ran = "; ".join(
        f"jax {v} on Python {r.about['python']}, commit {str(r.about['commit'])[:7]}"
        for v, r in zip(versions, (old, new), strict=True)
    )
    header = ["workload"] + [f"{v}: {what}" for v in versions for what in ("XLA", "stitched", "bytes / bound")] + [""]
    made = {
        pair.old.label: [
            pair.old.label,
            *(
                text
                for row in (pair.old, pair.new)
                for text in (_count(row.jit.launches), _count(row.stitched.launches), bytes_ratio(row.stitched, row))
            ),
            pair.verdict,
        ]
        for pair in pairs(old, new)
    }
    kept = _rows(before, len(header))
    rows = [made.pop(label, [f"{label} *", *cells]) for label, cells in kept.items()] + list(made.values())
    verdicts = [row[-1] for row in rows]
    counts = {
        "the same number of launches": verdicts.count(""),
        "fewer": verdicts.count("fewer launches"),
        "more": verdicts.count("MORE LAUNCHES"),
        "failed or not planned": sum(v.startswith(("FAILED", "NOT")) for v in verdicts),
    }
    earlier = re.findall(r"programs: (.*?)\. Written by", before) + re.findall(r"older: (.*?)\.\n", before)
    stars = sum(row[0].endswith(" *") for row in rows)
    told = f" Rows with a star ({stars}) are older: {'; or '.join(dict.fromkeys(earlier))}." if stars else ""
    lines = [
        f"# Planned launches under jax {versions[0]} and {versions[1]}",
        "",
        f"For {old.about['device']}, {old.about['options']['dtype']}, counted on what XLA's own compiler makes of both "
        f"programs: {ran}. "
        "Written by `python -m bench.versions` from two files of `python -m bench run`." + told,
        "",
        f"Of {len(rows)} workloads under jax {versions[1]}: "
        + ", ".join(f"{n} {what}" for what, n in counts.items())
        + ".",
        "",
        markdown(header, rows, right=range(1, 7)),
    ]
    return "\n".join(lines) + "\n"


def _rows(text: str, columns: int) -> dict[str, list[str]]:
    """The rows of a table in Markdown, by what the first column says."""
    lines = [line[2:-1].split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    return {cells[0].removesuffix(" *"): [c.strip() for c in cells[1:]] for cells in lines if len(cells) == columns}


def _count(launches: int | None) -> str:
    return "-" if launches is None else f"{launches:,}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the table; the exit status is 1 where a workload has more launches under the second version, or failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=main.__doc__)
    parser.add_argument("old", type=Path, help="results under one version of JAX")
    parser.add_argument("new", type=Path, help="the same under another")
    parser.add_argument("--out", type=Path, default=PATH, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the rows of workloads that were not run")
    options = parser.parse_args(argv)
    try:
        old, new = read(options.old), read(options.new)
        text = table(old, new, options.out.read_text(encoding="utf-8") if options.keep else "")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return int(any(p.verdict.isupper() or p.verdict.startswith("FAILED") for p in pairs(old, new)))


if __name__ == "__main__":
    sys.exit(main())
