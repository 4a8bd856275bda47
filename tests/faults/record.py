"""What the long runs came to, in one file: each under its name, with its command, seed, commit and date."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.about import commit, cpu
from bench.files import write_json

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "faults.json"


def keep(path: Path | None, name: str, command: str, figures: Mapping[str, Any]) -> None:
    """Puts the figures of a run in the place of those of an earlier one; nothing without a path."""
    if path is None:
        return
    found = json.loads(path.read_text()) if path.exists() else {}
    found[name] = {
        "command": command,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{cpu()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        **figures,
    }
    write_json(path, found)
