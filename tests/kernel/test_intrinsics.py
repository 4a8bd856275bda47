"""The table of intrinsics: what each row says can be asked for."""

from __future__ import annotations

import pytest

from jax_stitch.kernel import intrinsics
from jax_stitch.kernel.intrinsics import CALL, TABLE, Extent, Function, Use
from jax_stitch.kernel.model import RowShape
from jax_stitch.kernel.statements import Apply
from jax_stitch.latency.classes import CLASSES

SHAPES = [RowShape(64, 64, 2, 32, lanes_fastest=fastest, sequence=1, cluster=1) for fastest in (True, False)]


def statement(name: str) -> Apply:
    return Apply(name, ("a", "b"), function="f", sizes=(8, 32))


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("vectors", [False, True])
def test_costs_are_of_known_classes(name: str, vectors: bool) -> None:
    """A misspelt class would count as nothing."""
    row = TABLE[name]
    for shape in SHAPES:
        counted = list(row.cost(statement(name), Extent(shape, 4, vectors, 64.0)))
        assert counted and all(kind in (*CLASSES, CALL) and count > 0 for kind, count in counted)
        assert row.function is not None or all(kind != CALL for kind, _ in counted)


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.text])
def test_texts_have_all_their_fields(name: str) -> None:
    text = intrinsics.text_of(statement(name), ["0.0f"])
    assert "a" in text and "{" not in text and ("f" in text or TABLE[name].function is None)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="there is an intrinsic sort already"):
        intrinsics.register(TABLE["sort"])


def test_what_meets_waits_or_stands_between_barriers() -> None:
    """Barriers of its own need all threads of the block: one that waits has to be one in which all meet."""
    for row in TABLE.values():
        assert row.meets or not row.waits, row.name
        assert row.function in (None, *Function) and all(use in Use for use in row.uses), row.name
