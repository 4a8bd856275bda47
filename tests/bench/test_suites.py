"""The list of workloads, their sizes, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench import constants, papers, run, suites
from bench.__main__ import INCOMPLETE, main
from bench.files import read
from bench.rows import Row
from bench.workloads import ALL, PROGRAMS, Workload
from jax_stitch import devices
from jax_stitch.api import stitch_jit
from jax_stitch.backend.launch import gpu, ptx
from jax_stitch.inspect.cli import arguments
from jax_stitch.inspect.report.accuracy import agreement, reference
from tests.bench.here import Here

ROOT = Path(__file__).resolve().parents[2]
LISTED = (
    *("logistic_regression", "word2vec", "rnn", "bidirectional_rnn", "dynamic_rnn", "perceptron"),
    *("variational_auto_encoder", "speech_training", "asr_inference", "crnn_inference", "nmt_inference"),
    *("transformer_training", "bert_training", "bert_inference", "dien_training", "dien_inference", "multi_interest"),
    *("dialogue_generation", "cart_pole", "cart_pole_concatenate", "cart_pole_rng", "cart_pole_unrolled", "adamw"),
)
"""Issue 7's list."""
QUICK = ("logistic_regression", "cart_pole_concatenate", "discounted_rewards", "logsumexp")


def test_the_suite_of_all_has_every_workload_once() -> None:
    counted = Counter(case.workload.name for case in suites.cases("all"))
    assert set(counted) == set(ALL) and set(counted.values()) == {1}
    assert set(LISTED) <= set(counted)


def test_workloads_of_the_papers_are_planned_at_their_sizes() -> None:
    """The figures of small models would stand beside those of the papers' large ones."""
    sizes = {case.workload.name: case.size for case in suites.cases("all", gpu=True)}
    for name in papers.FIGURES:
        assert sizes[name] == (ALL[name].paper_size or ALL[name].size)
    assert sizes["bert_training"][:4] == (32, 128, 768, 12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_are_those_of_the_arguments(name: str) -> None:
    """A plan made from shapes would be of another program than the one that runs."""
    workload = PROGRAMS[name]
    for size in (workload.test_sizes[0], workload.gpu_size):
        _, shapes = workload.abstract(size, jnp.float32)
        assert jax.tree.leaves(shapes), name
    assert all(len(size) == len(workload.size) for size in (*workload.test_sizes, workload.gpu_size))


def agrees(workload: Workload, dtype: str = "float32") -> list[str]:
    function, args = workload.make(workload.test_sizes[1], jnp.dtype(dtype))
    plain, stitched = jax.jit(function)(*args), stitch_jit(function)(*args)
    leaves = agreement(stitched, plain, reference(function, args))
    assert max(leaf.plain.largest for leaf in leaves) < 1e-3 or workload.name == "adaptive_step"
    return [str(leaf) for leaf in leaves if not leaf.agrees]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in PROGRAMS])
def test_programs_are_right_when_stitched(name: str) -> None:
    """A wrong kernel; or a workload that has no float64 reference, because it casts or draws other numbers there."""
    assert not agrees(PROGRAMS[name])


def test_workloads_are_functions_by_name() -> None:
    function = arguments.load("bench.workloads:logistic_regression")
    args = arguments.make((), "bench.workloads:logistic_regression.args")
    params, _, loss = jax.eval_shape(function, *args)
    assert function.__name__ == "logistic_regression"
    assert params["kernel"].shape == (784, 10) and loss.shape == ()
    with pytest.raises(arguments.UsageError, match="no attribute"):
        arguments.load("bench.workloads:nonsense")


def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = {
        ("run", "--device", "h900"): "h200",
        ("run", "--suite", "loops", "--only", "adamw"): "none of adamw is in the suite 'loops'",
        ("report", str(tmp_path / "missing.json")): "missing.json",
    }
    for argv, told in wrong.items():
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2
        assert told in capsys.readouterr().err


RUN = ("run", "--suite", "micro", "--only", "logsumexp", "--small", "--no-peers", "--seconds", "0.2")
LATE = ("--budget", "0", "--no-cold")


def check_a_run(results: Path) -> None:
    found = json.loads(results.read_text(encoding="utf-8"))
    assert [(row["workload"], row["status"]) for row in found["rows"]] == [("logsumexp", "ok")]
    assert found["about"]["copy_bytes_per_second"] > 0 and found["about"]["packages"]["jax"] == jax.__version__
    for row in found["rows"]:
        assert row["stitched"]["cold"] > 0 and row["stitched"]["warm"] > 0
    assert [row.workload for row in read(results).rows] == ["logsumexp"]


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way but for processes and for plots, which ``test_reports.py`` has; a workload that fails is a row,
    and the exit status says so.
    """
    monkeypatch.setattr(run, "Worker", Here)
    results = tmp_path / "r.json"
    assert main([*RUN, "--json", str(results)]) == 0
    check_a_run(results)
    capsys.readouterr()
    assert main([*RUN, "--json", str(results), *LATE]) == INCOMPLETE
    assert capsys.readouterr().out.count("NOT REACHED: the 0 s of this run were used up") == 1


@pytest.mark.slow
def test_a_run_and_its_report_as_a_user_has_them(tmp_path: Path) -> None:
    results = tmp_path / "r.json"
    command = [sys.executable, "-m", "bench", *RUN, "--json", str(results)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_STITCH_CACHE_DIR": str(tmp_path / "cache")}
    first = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    check_a_run(results)
    assert main(["report", str(results), "--out", str(tmp_path / "report")]) == 0
    late = subprocess.run([*command, *LATE], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert late.returncode == INCOMPLETE
    assert late.stdout.count("NOT REACHED: the 0 s of this run were used up") == 1


def test_an_interrupted_run_has_a_row_for_every_workload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cut-off run loses nothing, and what it did not reach says so."""
    reached: list[str] = []

    def row(self: Any, case: suites.Case, limit: float) -> Row:
        if reached:
            raise KeyboardInterrupt
        reached.append(case.workload.name)
        return Row(case.workload.name, case.workload.family, case.size, "float32", "h200", "ok")

    monkeypatch.setattr(run.Workers, "row", row)
    path = tmp_path / "r.json"
    assert main(["run", "--suite", "loops", "--device", "h200", "--json", str(path)]) == 130
    assert "interrupted" in capsys.readouterr().err
    rows = read(path).rows
    assert [row.workload for row in rows] == [case.workload.name for case in suites.cases("loops")]
    assert rows[0].status == "ok" and {row.status for row in rows[1:]} == {"failed"}
    assert {row.stage for row in rows[1:]} == {"waiting"}


@pytest.mark.parametrize(("own", "stage"), [(100.0, "waiting"), (1.0, "timing")])
def test_a_budget_holds_for_the_workload_in_hand(
    own: float, stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that was begun late took its whole limit, and the run was ended from outside; it has not failed, unlike one
    that took its own time.
    """

    def row(self: Any, case: suites.Case, limit: float) -> Row:
        assert limit <= min(own, 50.0)
        reason = f"ran longer than {limit:.0f} s"
        return Row(case.workload.name, case.workload.family, case.size, "float32", "h200", "failed", "timing", reason)

    monkeypatch.setattr(run.Workers, "row", row)
    path = tmp_path / "r.json"
    given = ["--suite", "loops", "--device", "h200", "--json", str(path), "--limit", str(own), "--budget", "50"]
    main(["run", *given])
    assert {r.stage for r in read(path).rows} == {stage}


@pytest.mark.slow
def test_constants_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that XLA shortens would make launches free each time; a copy that it leaves out, bandwidth endless.

    On a busy machine the longer of two chains may be the quicker one: then they are timed again.
    """
    monkeypatch.setitem(constants.COPIES, "cpu", (1 << 16, 1 << 22))
    for _ in range(5):
        found = constants.answer({"device": "cpu"}, lambda stage: None)
        assert set(found["launch_seconds"]) == {"XLA", "stitched, FFI handler"}
        launches, rates = found["launch_seconds"].values(), found["copy_bytes_per_second"].values()
        if all(1e-8 < seconds < 1e-3 for seconds in launches) and all(1e8 < rate < 1e13 for rate in rates):
            return
    raise AssertionError(found)


def test_each_launcher_of_a_gpu_is_timed_by_its_own_calls() -> None:
    """Both rows of the table were of one launcher."""
    found = {}
    for name, one in constants.launchers(devices.get("h200")).items():
        text = jax.jit(one).lower(jax.ShapeDtypeStruct((constants.WIDTH,), np.float32)).as_text()
        found[name] = [target for target in (ptx.TARGET, gpu.TARGET) if f"@{target}(" in text]
    assert list(found.values()) == [[], [ptx.TARGET], [gpu.TARGET]]


def test_the_gpu_script_knows_its_options() -> None:
    wrong = subprocess.run(
        ["bash", str(ROOT / "bench/gpu.sh"), "--nonsense"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2 and "--quick" in wrong.stdout and "platformdirs" in wrong.stdout
    wrong = subprocess.run(
        ["bash", str(ROOT / "bench/gpu.sh"), "--device", "tpu"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2 and "cuda or cpu, not tpu" in wrong.stderr
