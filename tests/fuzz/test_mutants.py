"""The faults that are planted to try the generator are faults of the package as it is."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.fuzz.mutants import MUTANTS, PACKAGE
from tests.fuzz.probes import PROBE, probed


@pytest.mark.every_case
@pytest.mark.parametrize("name", MUTANTS)
def test_each_stands_at_one_place(name: str) -> None:
    """Five were of text that had gone: nothing was planted, and nothing could be found."""
    mutant = MUTANTS[name]
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1


TEXT = """
OUTSIDE = {"a": 1}
def f(x):
    if x > 2:
        return x + 1
    return [y * 2 for y in range(x)]
"""


@pytest.mark.parametrize(
    "x, reached", [(3, {"outside", "the test", "the branch"}), (1, {"outside", "the test", "the end"})]
)
def test_probes_say_what_is_run(x: int, reached: set[str]) -> None:
    """A fault whose probe does not speak is never planted, so never found."""
    places = {"outside": '"a": 1', "the test": "x > 2", "the branch": "x + 1", "the end": "y * 2"}
    said: set[str] = set()
    space: dict[str, Any] = {PROBE: said.add}
    exec(compile(probed(TEXT, places), "<text>", "exec"), space)
    space["f"](x)
    assert said == reached


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if m.file.endswith(".py")])
def test_each_has_a_probe(name: str) -> None:
    tree = probed((PACKAGE / MUTANTS[name].file).read_text(), {name: MUTANTS[name].old})
    (probe,) = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and _is_probe(n))
    assert ast.unparse(probe) == f"{PROBE}({name!r})"


def _is_probe(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == PROBE
