"""``python -m docs.tools.draw``: writes all drawings of the documentation to ``docs/pictures``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from docs.tools import levels, stages

PICTURES = Path(__file__).resolve().parent.parent / "pictures"


def drawings() -> Mapping[str, str]:
    """The text of each drawing by the name of its file."""
    return {f"{name}.svg": draw().svg() for name, draw in (levels.DRAWINGS | stages.DRAWINGS).items()}


def main() -> int:
    """Writes the drawings."""
    for name, text in drawings().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
