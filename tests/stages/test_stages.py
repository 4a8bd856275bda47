"""``python -m jax_stitch trace`` and ``JAX_STITCH_DUMP``: the same texts, on the screen and in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import hlo_parser
from jax_stitch import plan_hlo, stitch_jit
from jax_stitch.__main__ import main
from jax_stitch.jit.stages import STAGES, stages_named
from jax_stitch.jit.stages.dump import folder_name
from jax_stitch.kernel.parse import parse_all
from jax_stitch.kernel.text import text as kernel_text
from tests.hlo_files.programs import ROWS
from tests.light import light

__all__ = ["light"]

TOY = """
import jax, jax.numpy as jnp

def scaled(x):
    y = x / (1 + jnp.abs(x).sum(-1, keepdims=True))
    return jax.lax.while_loop(lambda c: c.sum() > 3, lambda c: jnp.sin(c) * y, y)

def told(x):
    jax.debug.print("{}", x.sum())
    return jax.nn.softmax(x, 0)
"""
X = jnp.linspace(-1, 1, 4096 * 64).reshape(4096, 64)


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_stages.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("toy_stages", None)


def standardised(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / (1 + x.std(-1, keepdims=True))


def traced(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", *arguments]) == 0
    return capsys.readouterr().out


def test_all_stages_in_the_order_of_processing(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a stage that is left out, or whose text is another one's; loops' bodies that are not shown."""
    out = traced(capsys, "toy_stages:scaled", "--args", "f32[4096,64]", "--device", "h200")
    heads = [line for line in out.splitlines() if line.startswith("==== ")]
    assert heads == [f"==== {stage} of scaled on h200" for stage in STAGES]
    hlo, graph, plan, scheduled, kernel, source = (part.split("\n", 1)[1] for part in out.split("==== ")[1:])
    assert hlo_parser.parse(hlo).name == "jit_scaled"
    assert "dimensions=(1,)" in graph and "// body of %" in graph and "// condition of %" in graph
    assert "pattern 0.0: straight code" in plan
    assert "LoopPass size=64 reduces=%" in scheduled and "template reduce_sum[" in scheduled
    assert "\n".join(map(kernel_text, parse_all(kernel))) == kernel.rstrip() + "\n"
    assert "place=unrolled(j, 64)" in kernel
    assert source.startswith("// stitch_0") and '#include "stitch.h"' in source


def test_passes_say_what_they_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a pass that is not listed, and changes in a loop's body that are not counted."""
    out = traced(capsys, "toy_stages:scaled", "--args", "f32[4096,64]", "--device", "h200", "--passes")
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert out.startswith("building of ") and "improve-loop of " in out
    assert lines["unroll"].endswith("unchanged")
    assert "operations: +1 " in lines["rotate"], "the test is in the body, and once before"
    assert "unroll-inner-loops" not in lines, "a GPU has teams of several threads"


def test_graphs_after_passes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a pass that is dumped before it ran, and a wrong name that goes unsaid."""
    monkeypatch.setenv("JAX_STITCH_DUMP", "graph:after=rotate,graph:after=rotat")
    monkeypatch.setenv("JAX_STITCH_DUMP_DIR", str(tmp_path / "here"))
    with pytest.warns(UserWarning, match="no pass 'rotat' ran; those that did are restore-operations, .*rotate"):
        assert main(["plan", "toy_stages:scaled", "--args", "f32[4096,64]", "--device", "h200"]) == 0
    (written,) = (tmp_path / "here").rglob("*.txt")
    assert written.name == "2_graph_after_rotate.txt"
    text = written.read_text()
    assert text.startswith("// after rotate (normalise-loop)\ngraph ") and "// condition of %" in text


def test_one_stage_by_itself_is_what_other_tools_read(capsys: pytest.CaptureFixture[str]) -> None:
    out = traced(capsys, "toy_stages:scaled", "--args", "f32[4096,64]", "--stage", "hlo")
    assert out.startswith("HloModule jit_scaled") and not hlo_parser.verify(hlo_parser.parse(out))


def test_a_file_of_hlo_is_traced_as_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "rows.hlo").write_text(ROWS)
    out = json.loads(traced(capsys, "--hlo", "rows.hlo", "--stage", "plan,graph", "--json"))
    assert list(out) == ["graph", "plan"]
    assert out["plan"] == plan_hlo(ROWS).stages["plan"]()


def test_a_function_that_is_left_alone_shows_its_hlo_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "toy_stages:told", "--args", "f32[64,64]", "--device", "h200"]) == 0
    shown = capsys.readouterr()
    assert "==== hlo of told" in shown.out


@pytest.mark.parametrize("stages", [["kernl"], ["hlo", "sauce"], ["plan,grap"]])
def test_wrong_names_of_stages_are_told_with_the_right_ones(
    stages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "toy_stages:scaled", "--args", "f32[4]", "--stage", *stages]) == 2
    error = capsys.readouterr().err
    assert "there is no stage" in error and ", ".join(STAGES) in error and "Traceback" not in error


def test_files_hold_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a second way of writing them, and programs from the cache, whose stages nobody would see."""
    monkeypatch.setenv("JAX_STITCH_DUMP_DIR", str(tmp_path / "here"))
    for _ in range(2):  # the second time it is on disk
        monkeypatch.setenv("JAX_STITCH_DUMP", "plan,source")
        stitch_jit(standardised, mode="now")(X)
        (folder,) = (tmp_path / "here").iterdir()
        assert sorted(p.name for p in folder.iterdir()) == ["3_plan.txt", "6_source.cc"]
        monkeypatch.delenv("JAX_STITCH_DUMP")
        plan = stitch_jit(standardised).plan(X)
        assert (folder / "3_plan.txt").read_text() == plan.stages["plan"]()
        assert (folder / "6_source.cc").read_text() == plan.stages["source"]()
        for path in folder.iterdir():
            path.unlink()
        jax.clear_caches()


def test_each_program_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_DUMP", "all")
    for rows in (32, 64, 64):
        stitch_jit(standardised).plan(X[:rows])
    stitch_jit(standardised).plan(X[:64], device="h200")
    folders = sorted(p.name.rsplit("-", 1)[0] for p in (tmp_path / "jax_stitch_dump").iterdir())
    assert folders == ["standardised-cpu", "standardised-cpu", "standardised-h200"]
    for folder in (tmp_path / "jax_stitch_dump").iterdir():
        assert [p.name[2:].split(".")[0] for p in sorted(folder.iterdir())] == list(STAGES)


def test_names_of_functions_stay_in_their_folder() -> None:
    assert folder_name("<lambda>/../é x", "cpu", "").startswith("_lambda_______x-cpu-")


def test_a_folder_that_cannot_be_written_to_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error in place of results, and a warning for each program."""
    (tmp_path / "a_file").write_text("")
    monkeypatch.setenv("JAX_STITCH_DUMP", "all")
    monkeypatch.setenv("JAX_STITCH_DUMP_DIR", str(tmp_path / "a_file"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in (8, 16):
            assert stitch_jit(standardised, mode="now")(X[:rows]).shape == (rows, 64)
    (said,) = [str(w.message) for w in caught if "cannot be written" in str(w.message)]
    assert "a_file" in said and "JAX_STITCH_DUMP_DIR" in said


def test_a_wrong_name_in_the_variable_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_DUMP", "plans")
    with pytest.warns(UserWarning, match="no stage 'plans'; the stages are hlo, graph, plan, schedule, kernel, source"):
        stitch_jit(standardised).plan(X[:4])


def test_in_the_background_too(tmp_path: Path) -> None:
    """Catches stages that are written only where the process itself plans, in a folder of the child's."""
    code = (
        "import jax.numpy as jnp, toy_stages\nfrom jax_stitch import stitch_jit\n"
        "f = stitch_jit(toy_stages.scaled)\nx = jnp.ones((4096, 64))\nf(x)\nf.wait(120)\n"
    )
    environment = os.environ | {"JAX_STITCH_DUMP": "source", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=300)
    (folder,) = (tmp_path / "jax_stitch_dump").iterdir()
    assert [p.name for p in folder.iterdir()] == ["6_source.cc"]


def test_stages_by_name() -> None:
    assert stages_named(["source", "HLO "], "x") == ("hlo", "source")
    assert stages_named(["all"], "x") == STAGES and stages_named([""], "x") == ()
