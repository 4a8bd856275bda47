"""What stores notebooks' outputs, on small notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.tools import notebooks
from docs.tools.notebook_pages import page_of


def notebook(folder: Path, *sources: str) -> Path:
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "\n", "Text."]}]
    for source in sources:
        lines = source.splitlines(keepends=True)
        cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines})
    path = folder / "small.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    return path


def stored(path: Path) -> list[list[dict[str, Any]]]:
    notebooks.store(path)
    return [cell["outputs"] for cell in notebooks.code_cells(json.loads(path.read_text(encoding="utf-8")))]


def test_what_is_printed_and_the_last_value_are_stored(tmp_path: Path) -> None:
    printed, value, hidden, nothing = stored(notebook(tmp_path, "x = 3\nprint(x)", "x + 1", "x + 1;", "y = x"))
    assert notebooks.printed(printed) == "3\n"
    assert value[0]["data"]["text/plain"] == ["4"] and value[0]["output_type"] == "execute_result"
    assert hidden == nothing == []


def test_figures_and_html_are_stored_and_shown(tmp_path: Path) -> None:
    """A figure that stays open would be shown again under the next cell."""
    draw = "import matplotlib.pyplot as plt\nplt.figure().suptitle('Some words');"
    html = "class Table:\n    def _repr_html_(self):\n        return '<table></table>'\n\n\nTable()"
    drawn, table, last = stored(path := notebook(tmp_path, draw, html, "1"))
    assert drawn[0]["data"]["text/plain"] == ["Some words"] and len(last) == 1
    assert table[0]["data"]["text/html"] == ["<table></table>"]
    text, pictures = page_of(path)
    assert list(pictures) == ["small_0.png"] and pictures["small_0.png"].startswith(b"\x89PNG")
    assert "![Some words](small_0.png)" in text and "<table></table>" in text and text.startswith("# Title\n")


def test_a_cell_that_raises_stores_nothing(tmp_path: Path) -> None:
    before = (path := notebook(tmp_path, "print(1)", "1 / 0")).read_text(encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        notebooks.store(path)
    assert path.read_text(encoding="utf-8") == before


def test_what_is_measured_is_kept_unless_asked_for(tmp_path: Path) -> None:
    """Storing one changed word on a busy machine stored its times as well."""
    path = notebook(tmp_path, "import random\nprint(random.random())", "print(random.random())")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["cells"][1]["metadata"] = {"tags": [notebooks.MEASURED]}
    path.write_text(json.dumps(content), encoding="utf-8")
    first, other = stored(path)
    kept, changed = stored(path)
    assert first and kept == first and changed != other
    notebooks.store(path, measured=True)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert notebooks.code_cells(content)[0]["outputs"] != first


def test_a_notebook_with_the_same_outputs_is_the_same_file(tmp_path: Path) -> None:
    """Running again would show up as a change: pictures with a date, outputs added to the old ones."""
    path = notebook(tmp_path, "import matplotlib.pyplot as plt\nplt.plot([1, 2]);", "print(2)")
    stored(path)
    first = path.read_bytes()
    stored(path)
    assert path.read_bytes() == first
