"""The measurements in the documents are those of the committed results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import figures


def test_the_page_says_what_the_results_say() -> None:
    """A result was committed without the page, or the page was edited by hand: run `python -m bench.figures`."""
    assert figures.main(["--check"]) == 0


def test_every_file_has_a_line_with_its_commit() -> None:
    text = figures.block()
    for name in (*figures.LINES, "cpu", "h200", "a100", "gpu", "gpu_kernels"):
        about = json.loads((figures.RESULTS / f"{name}.json").read_text(encoding="utf-8"))["about"]
        # What was measured before results said so has none.
        commit = f", commit {about['commit'][:7]}" if "commit" in about else ""
        assert f"`bench/results/{name}.json`{commit}" in text


def test_what_is_slower_is_said(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(figures.RESULTS, tmp_path / "results"))
    path = folder / "autotune.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["rows"][0] |= {"is_slower": True, "workload": "the slow one"}
    path.write_text(json.dumps(values), encoding="utf-8")
    assert "slower than `jax.jit`: the slow one" in figures.block(folder)


def test_the_rest_of_the_page_stays() -> None:
    text = f"before\n{figures.BEGIN}\nold\n{figures.END}\nafter\n"
    assert figures.written(text, "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="substring"):
        figures.written("nothing", "new")
