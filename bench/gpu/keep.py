"""``python -m bench.gpu.keep gpu.tar.gz``: what a session on a GPU found, into ``bench/results``.

`gpu.json` has the rows of all suites, without the samples of their times; `gpu_session.json` the verdict on each step,
and what the cost model's constants, its predictions and autotune came to.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.about import ROOT
from bench.files import FORMAT, write_json

SUITES = ("micro", "loops", "models", "optimizers")
FOUND = {"verdicts": "verdicts.json", "constants": "constants.json", "evaluator": "evaluators_cuda.json"}
MORE = {"autotune": "autotune.json"}
LEFT_OUT = ("samples", "stops")


def read(archive: Path) -> dict[str, Any]:
    """The JSON files of a session's one file, by their names. Raises ``OSError`` and ``tarfile.TarError``."""
    with tarfile.open(archive) as tar:
        members = [m for m in tar.getmembers() if m.isfile() and m.name.endswith(".json")]
        return {Path(m.name).name: json.load(file) for m in members if (file := tar.extractfile(m)) is not None}


def merged(files: dict[str, Any]) -> dict[str, Any]:
    """One file of results of all suites that were run. Raises ``ValueError`` where none was."""
    there = [files[f"{name}.json"] for name in SUITES if f"{name}.json" in files]
    if not there:
        raise ValueError(f"no suite was run: there is none of {', '.join(f'{name}.json' for name in SUITES)}")
    rows = [_without(row) for suite in there for row in suite["rows"] if row["stage"] != "waiting"]
    return {"format": FORMAT, "about": there[0]["about"], "rows": rows}


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(v) for key, v in value.items() if key not in LEFT_OUT}
    return [_without(v) for v in value] if isinstance(value, list) else value


def main(argv: Sequence[str] | None = None) -> int:
    """Writes both files; the exit status is 1 where the archive cannot be read or no suite was run."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.keep", description=__doc__)
    parser.add_argument("archive", type=Path, help="the file that bench/gpu.sh has written")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="(default: bench/results)")
    options = parser.parse_args(argv)
    try:
        files = read(options.archive)
        write_json(options.out / "gpu.json", merged(files))
    except (OSError, tarfile.TarError, ValueError) as error:
        print(f"{options.archive}: {error}", file=sys.stderr)
        return 1
    known = {name: files[file] for name, file in (FOUND | MORE).items() if file in files}
    write_json(options.out / "gpu_session.json", known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
