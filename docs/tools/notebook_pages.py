"""A notebook with its stored outputs as a page in Markdown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent.parent / "notebooks"


def notebooks() -> list[Path]:
    """All notebooks, in the order in which they are to be read."""
    return sorted(FOLDER.glob("*.ipynb"), key=lambda path: (_order(path), path.name))


def _order(path: Path) -> int:
    return int(json.loads(path.read_text(encoding="utf-8"))["metadata"].get("jax_stitch", {}).get("order", 99))


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and the pictures on it by name."""
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts += _shown(output, path.stem, pictures)
    first = parts[0].split("\n", 1)
    about = f"{first[0]}\n\n*This page is the notebook `notebooks/{path.name}` with its outputs.*\n"
    return "\n\n".join([about + (first[1] if len(first) > 1 else ""), *parts[1:]]) + "\n", pictures


def _shown(output: dict[str, Any], stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """One output in Markdown; pictures become files."""
    if output["output_type"] == "stream":
        yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        return
    data = output["data"]
    if "image/png" in data:
        name = f"{stem}_{len(pictures)}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        words = "".join(data.get("text/plain", [])).strip("<>") or "picture"
        yield f"![{words}]({name})"
    elif "text/html" in data:
        rows = "".join(data["text/html"]).splitlines()
        yield '<div class="output">' + " ".join(row.strip() for row in rows if row.strip()) + "</div>"
    else:
        yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
