"""Notebooks run from top to bottom, and their stored outputs are what they print today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.tools.notebook_pages import notebooks
from docs.tools.notebooks import code_cells, is_measured, printed, runs
from docs.tools.snippets import outputs_hold

ORDER = [path.stem for path in notebooks()]
SLOW = set(ORDER) - {"fusion_plans"}
"""Take more than 10 s each."""


def stable(text: str) -> str:
    """What a cell printed, without the line of a plan that says how long planning took."""
    return re.sub(r"^  time: .*\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in SLOW else []) for p in notebooks()],
)
def test_notebook_prints_what_is_stored(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package prints, or plans, something else: run `python -m docs.tools.notebooks` on it, and read it."""
    monkeypatch.chdir(tmp_path)
    for cell, outputs in runs(json.loads(notebook.read_text(encoding="utf-8")), notebook.stem):
        stored = cell["outputs"]
        assert [o["output_type"] for o in outputs] == [o["output_type"] for o in stored], "".join(cell["source"])
        if outputs_hold() and not is_measured(cell):
            assert stable(printed(outputs)) == stable(printed(stored)), "".join(cell["source"])


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda path: path.stem)
def test_outputs_are_stored(notebook: Path) -> None:
    """A notebook was committed without its outputs: a code host would show bare code. Or with paths of a machine."""
    cells = code_cells(json.loads(notebook.read_text(encoding="utf-8")))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in o.get("data", {}) for cell in cells for o in cell["outputs"]), "no picture"
    text = "".join(printed(cell["outputs"]) + json.dumps(cell["outputs"]) for cell in cells)
    assert len({cell["id"] for cell in cells}) == len(cells), "Jupyter wants an id of its own for each cell"
    assert not [path for path in ("/tmp/", "/home/", "/root/") if path in text]


def test_notebooks_lead_to_each_other() -> None:
    """The order in which they are read is in their metadata; two with the same number have none."""
    assert (
        len({json.loads(p.read_text("utf-8"))["metadata"]["jax_stitch"]["order"] for p in notebooks()})
        == len(ORDER)
        >= 6
    )
