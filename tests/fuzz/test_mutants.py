"""The faults that are planted to try the generator are faults of the package as it is."""

from __future__ import annotations

import pytest

from tests.fuzz.mutants import MUTANTS, PACKAGE


@pytest.mark.every_case
@pytest.mark.parametrize("name", MUTANTS)
def test_each_stands_at_one_place(name: str) -> None:
    """Five were of text that had gone: nothing was planted, and nothing could be found."""
    mutant = MUTANTS[name]
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1
