"""Each pass, on the smallest program that it changes: the text before and the text after, without JAX."""

from __future__ import annotations

import pytest

from tests.passes.texts import AFTER, BEFORE, FOLDER, NAMES, written


@pytest.mark.every_case
@pytest.mark.parametrize("name", NAMES)
def test_a_pass_makes_what_its_text_says(name: str) -> None:
    """Catches any change of what a pass makes; `python -m tests.passes.texts NAME` writes the new text, to be read."""
    assert written(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_changes_its_program(name: str) -> None:
    """Catches a text that shows nothing, since the pass leaves its program as it was."""
    _, _, graphs = (FOLDER / f"{name}.txt").read_text().partition(BEFORE)
    before, _, after = graphs.partition(AFTER)
    assert before and after and before != after


def test_every_text_is_of_a_pass() -> None:
    """Catches the text of a pass that is gone."""
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(NAMES)
