"""The measurements in the documents are those of the committed results."""

from __future__ import annotations

import json

import pytest

from bench import figures


def test_the_page_says_what_the_results_say() -> None:
    """A result was committed without the page, or the page was edited by hand: run `python -m bench.figures`."""
    assert figures.main(["--check"]) == 0


def test_every_file_has_a_line_with_its_commit() -> None:
    text = figures.block()
    lines = (name for name in figures.LINES if (figures.RESULTS / f"{name}.json").exists())
    for name in (*lines, "cpu", "h200", "a100", "gpu", "gpu_kernels"):
        about = json.loads((figures.RESULTS / f"{name}.json").read_text(encoding="utf-8"))["about"]
        commit, version = f"commit {about['commit'][:7]}", f"jax {about['packages']['jax']}"
        assert any(f"`bench/results/{name}.json`, {end}" in text for end in (commit, f"{version}, {commit}"))
        assert version in text


def test_what_is_slower_is_said() -> None:
    row = {"plain": 1.0, "tuned": 2.0, "is_slower": True, "workload": "the slow one"}
    about = {"packages": {"jax": "0.12.0.1"}, "commit": "0123456789ab"}
    line = figures.LINES["autotune"]({"rows": [row], "failed": [], "about": about})
    assert "slower than `jax.jit`: the slow one" in line and "jax 0.12.0.1, commit 0123456" in line


def test_the_rest_of_the_page_stays() -> None:
    text = f"before\n{figures.BEGIN}\nold\n{figures.END}\nafter\n"
    assert figures.written(text, "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="substring"):
        figures.written("nothing", "new")
