"""``python -m bench small``: its programs run, and its figures are what they say."""

from __future__ import annotations

import ast
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.small import answers, inside, predicted, programs
from bench.small.command import compared, growth_table, keeps_bars
from bench.small.scans import GROWTH


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in dict.fromkeys(programs.USUAL + programs.INSIDE + programs.ALGEBRA)
        if not n.startswith(("scan_gradient_6", "scan_gradient_3"))
    ],
)
def test_programs_trace_in_single_precision(name):
    """A literal of NumPy's in the text would make a program one of float64 where that is on: another program."""
    fun, args = programs.PROGRAMS[name].make()
    given = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            np.shape(x), "float32" if np.asarray(x).dtype.kind == "f" else np.asarray(x).dtype
        ),
        args,
    )
    results = jax.tree.leaves(jax.eval_shape(fun, *given))
    assert results
    assert all(r.dtype == jnp.float32 for r in results if jnp.issubdtype(r.dtype, jnp.floating))


def test_programs_import_nothing_that_the_old_jax_lacks():
    """jax 0.4.31 runs the same files: they may import JAX, NumPy and each other alone."""
    folder = Path(programs.__file__).parent
    for name in ("made", "scans", "solvers", "robots", "nets", "writes", "everyday", "algebra", "steps", "programs"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                for module in modules:
                    assert module.split(".")[0] in (
                        "__future__",
                        "collections",
                        "dataclasses",
                        "functools",
                        "jax",
                        "numpy",
                        "typing",
                    ) or module.startswith("bench.small")


def test_figures_are_medians_of_ratios_in_turn():
    """A round on a busy machine is slow for all: the ratio of medians would mix rounds."""
    samples = {
        "plain": [4.0, 40.0, 2.0],
        "stitched": [2.0, 10.0, 1.0],
        "again": [4.0, 40.0, 2.0],
        "old": [1.0, 20.0, 2.0],
    }
    found = compared(samples)
    assert found["times_jit"] == 2.0
    assert found["times_old"] == 2.0
    assert found["noise"] == 1.0


def test_bars():
    """A program that is slower than allowed, or that failed, makes the command fail."""
    exact = {"stitched_error": 3e-6, "plain_error": 1e-8, "moved_error": 1e-6}
    row = {"failed": None, "times_jit": 1.0, "times_old": 0.9, **exact}
    assert keeps_bars(row)
    assert not keeps_bars(row | {"times_jit": 0.96})
    assert not keeps_bars(row | {"times_old": 0.79})
    assert not keeps_bars({"failed": "no"})
    assert not keeps_bars(row | {"moved_error": 1e-8}), "less exact than the program's own rounding"


def test_sixty_programs_are_timed_as_parts_of_another():
    """Each once, some of doubles; fails where a program is lost."""
    assert len(set(programs.INSIDE)) == len(programs.INSIDE) == 60
    assert sum(programs.PROGRAMS[name].doubles for name in programs.INSIDE) >= 5


def test_a_part_is_judged_by_the_middle_of_its_runs():
    """One slow run of three is noise; one that failed is a failure."""
    exact = {"failed": None, "stitched_error": 3e-6, "plain_error": 1e-8, "moved_error": 1e-6}
    runs = [exact | {"times_jit": ratio} for ratio in (0.5, 1.2, 0.95)]
    assert inside.middle(runs)["times_jit"] == 0.95
    assert inside.keeps_bar(inside.middle(runs)) and not inside.keeps_bar(inside.middle(runs[:1]))
    assert not inside.keeps_bar(inside.middle([*runs, {"failed": "no"}]))
    assert not inside.keeps_bar(runs[1] | {"moved_error": 1e-8}), "less exact than the program's own rounding"


@pytest.mark.parametrize("name", ["unrolled_scan", "narrow_counter"])
def test_a_part_is_stitched_and_says_so(name, tmp_path):
    """The functions that are timed compute the same, and of the stitched one there are kernels."""
    question = {
        "do": "prepare",
        "program": name,
        "dtype": "float32",
        "inside": True,
        "file": str(tmp_path / "right.npz"),
    }
    answers.answer(question | {"kinds": ["reference"]}, str)
    found = answers.answer(question | {"kinds": ["plain", "stitched"]}, str)
    assert found["kernels"] and found["detail"] and inside.agrees(found), found


def test_growth_is_of_a_step_and_carry():
    """Each size has a line, also one that failed or was not timed."""
    name = GROWTH[(20, 1000)].name
    row = {"program": name, "failed": None, "plain": 0.02, "stitched": 0.01, "times_jit": 2.0}
    failed = {"program": GROWTH[(4, 10)].name, "failed": "too long"}
    table = growth_table([row | {"plain_first": 1.0, "stitched_first": 2.0}, failed])
    columns = [list(column.cells) for column in table.columns]
    at = columns[0].index("20") + 2
    assert [c[at] for c in columns] == ["20", "1,000", "1 us", "500 ns", "2.00", "1 s", "2 s"]
    assert columns[2][0] == "too long"
    assert len(columns[0]) == len(GROWTH)


def test_predictions_that_are_off_are_named():
    """Catches one side alone being judged, or only what is too slow."""
    rows = [
        predicted.Row("near", 1e-5, 1.5e-5, None, None),
        predicted.Row("slower", 1e-5, 1e-5, 1e-5, 3e-5),
        predicted.Row("faster", 5e-5, 1e-5, 1e-5, 1e-5),
    ]
    *_, slower, faster, said = predicted.table(rows).splitlines()
    assert slower.startswith("slower") and faster.startswith("faster")
    assert slower.endswith("OFF") and faster.endswith("OFF") and said.startswith("3 programs: 2 off by more than 2")
    sentence = predicted.sentence([asdict(row) for row in rows], "a file")
    assert "by more than 2 in 2 (faster, slower)" in sentence
