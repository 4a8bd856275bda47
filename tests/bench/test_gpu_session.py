"""The session on a GPU (`bench/gpu.sh`): its limits, verdicts and one file; what is missing, hangs or was not done."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bench.gpu import session, wheels
from bench.gpu.session import PART, RESERVE, Outcome, Session, Step, exit_status
from bench.gpu.steps import BUDGETS, QUICK, steps

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parents[2]


def python(name: str, limit: float, code: str, needs: str = "") -> Step:
    return Step(name, limit, (PYTHON, "-S", "-c", code), needs)


def run(tmp_path: Path, *chosen: Step, budget: float = 60.0) -> tuple[int, Session]:
    folder = tmp_path / "found"
    folder.mkdir()
    made = Session(chosen, budget, folder, tmp_path / "out" / "gpu.tar.gz", time.monotonic())
    return made.run({"device": "cpu"}, show=lambda line: None), made


@pytest.mark.parametrize("device", BUDGETS)
@pytest.mark.parametrize("quick", [False, True])
def test_the_limits_add_up_to_the_budget(device: str, quick: bool, tmp_path: Path) -> None:
    """They added up to 1,000 s of 520: the last steps never had any."""
    for budget in (QUICK, BUDGETS[device], 300.0):
        chosen = steps(device, tmp_path, budget, quick=quick)
        assert sum(s.limit for s in chosen) + RESERVE == pytest.approx(budget)
        Session(chosen, budget, tmp_path, tmp_path / "gpu.tar.gz", 0.0)
        with pytest.raises(ValueError, match="more than the budget"):
            Session(chosen, budget - 1, tmp_path, tmp_path / "gpu.tar.gz", 0.0)
    assert len({s.name for s in chosen}) == len(chosen), "each has a file of its own"


@pytest.mark.parametrize(("device", "budget"), [("cuda", 180.0), ("cpu", 180.0), ("cpu", 440.0)])
def test_every_step_of_a_short_session_is_begun(device: str, budget: float, tmp_path: Path) -> None:
    """The first step of a quick rehearsal had less than what a step is begun for, and never ran."""
    for quick in (True, False):
        assert min(s.limit for s in steps(device, tmp_path, budget, quick=quick)) >= session.LEAST


def test_the_most_valuable_comes_first(tmp_path: Path) -> None:
    names = [s.name for s in steps("cuda", tmp_path, 540.0)]
    order = ["one tiny kernel", "compositions", "correctness", "micro", "share of a copy", "evaluator", "autotune"]
    assert [name for name in names if name in order] == order


def test_every_step_has_a_verdict_and_all_is_in_one_file(tmp_path: Path) -> None:
    status, made = run(
        tmp_path,
        python("good", 9, "print('seen')"),
        python("bad", 9, "raise SystemExit(1)"),
        python("part", 9, f"raise SystemExit({PART})"),
        python("absent", 9, "", needs="no-such-program"),
        Step("nowhere", 9, ("/no/such/program",)),
    )
    assert status == 1
    assert [o.verdict for o in made.outcomes] == ["well", "WRONG", "not all done", "missing", "WRONG"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["gpu.tar.gz"]
    with tarfile.open(tmp_path / "out" / "gpu.tar.gz") as tar:
        found = json.load(tar.extractfile("gpu/verdicts.json"))
        assert b"seen" in tar.extractfile("gpu/good.log").read()
        assert b"no-such-program is not installed" in tar.extractfile("gpu/verdicts.txt").read()
    assert found["exit_status"] == 1 and len(found["steps"]) == 5 and found["about"] == {"device": "cpu"}


def test_what_hangs_is_ended_with_all_that_it_started_and_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a child in a session of its own, as workers are, whose parent is killed and cannot end it any more."""
    monkeypatch.setattr(session, "GRACE", 1.0)
    monkeypatch.setattr(session, "LEAST", 1.0)
    child = tmp_path / "child"
    code = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
p = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(99)"], start_new_session=True)
open({str(child)!r}, "w").write(str(p.pid))
time.sleep(99)
"""
    status, made = run(tmp_path, python("hangs", 3.0, code), python("next", 5, ""), budget=20)
    assert [o.verdict for o in made.outcomes] == ["ended", "well"] and status == PART
    assert made.outcomes[0].seconds < 15 and "limit" in str(made.outcomes[0])
    pid = int(child.read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_step_counts_from_its_start(tmp_path: Path) -> None:
    """Its imports took ten seconds on a busy machine, and its budget began after them: it was ended from outside."""
    code = "import time; from bench.clock import begun; time.sleep(1); print(1 <= time.monotonic() - begun() < 9)"
    _, made = run(tmp_path, Step("told", 9, (PYTHON, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]; {code}")))
    assert made.outcomes[0].verdict == "well" and "True" in (tmp_path / "found" / "told.log").read_text()


def test_a_failure_before_the_end_is_no_lack_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was ended after it had said what is wrong counted as one that was not done."""
    monkeypatch.setattr(session, "GRACE", 1.0)
    monkeypatch.setattr(session, "LEAST", 1.0)
    code = "import time; print('layer_norm: WRONG: leaf 0', flush=True); time.sleep(99)"
    status, made = run(tmp_path, python("slow", 3.0, code), budget=9.5)
    assert status == 1 and made.outcomes[0].verdict == "WRONG"


def test_what_one_step_leaves_the_next_has(tmp_path: Path) -> None:
    """And never more than twice its own: what is behind it keeps its time."""
    status, made = run(tmp_path, python("quick", 10, ""), python("told", 10, "import sys; print(sys.argv)"), budget=26)
    assert status == 0 and made.outcomes[0].limit == pytest.approx(10, abs=0.5)
    assert 18 < made.outcomes[1].limit <= 20


def test_the_file_is_there_before_the_end(tmp_path: Path) -> None:
    """Whoever is killed keeps what was found: the file is written after each step."""
    code = f"import tarfile; print(tarfile.open({str(tmp_path / 'out' / 'gpu.tar.gz')!r}).getnames())"
    _, made = run(tmp_path, python("first", 9, "print(1)"), python("second", 9, code))
    assert made.outcomes[1].verdict == "well"
    assert "first.log" in (tmp_path / "found" / "second.log").read_text()


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ((), 1),
        (("missing", "missing"), 1),
        (("no time", "ended"), 1),
        (("well", "missing"), 0),
        (("well", "no time"), PART),
        (("well", "ended"), PART),
        (("not all done",), PART),
        (("well", "WRONG"), 1),
    ],
)
def test_the_exit_status_is_honest(verdicts: tuple[session.Verdict, ...], status: int) -> None:
    """ "all that was done is well" was said where nothing was done."""
    assert exit_status([Outcome(v, v, 1.0, 1.0) for v in verdicts]) == status


def test_wheels_are_taken_for_what_is_missing_alone(tmp_path: Path) -> None:
    """A carried wheel of an older version stood before the installed package."""
    for name in ("numpy-1.0-py3-none-any.whl", "no_such_package-2.0-py3-none-any.whl", "No.Such-1-py3-none-any.whl"):
        (tmp_path / name).touch()
    assert [w.name for w in wheels.useful(tmp_path)] == sorted(p.name for p in tmp_path.glob("[nN]o[_.]*"))
    assert wheels.distribution(Path("markdown_it_py-3.0-py3-none-any.whl")) == "markdown-it-py"


def test_wheels_of_other_pythons_and_machines_are_left(tmp_path: Path) -> None:
    """What is built is carried for several Pythons; by name alone the last was taken."""
    python, machine = f"cp{sys.version_info.major}{sys.version_info.minor}", platform.machine()
    own = f"no_such-1-{python}-{python}-manylinux2014_{machine}.whl"
    for name in (
        own,
        f"no_such-1-cp399-cp399-manylinux2014_{machine}.whl",
        f"no_such-1-{python}-{python}-zlinux_none.whl",
    ):
        (tmp_path / name).touch()
    assert [w.name for w in wheels.useful(tmp_path)] == [own]


def test_what_is_needed_and_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(wheels, "_pip", lambda *arguments, **_: asked.append(arguments) or 1)
    monkeypatch.setattr(wheels, "NEEDED", ("json", "no_such_module"))
    assert wheels.main(["--folder", str(tmp_path), "--site", str(tmp_path / "site")]) == 1
    assert "missing: no_such_module" in capsys.readouterr().err and asked[-1][-1] == "no_such_module"


def test_nothing_but_python_is_needed_to_say_what_is_missing(tmp_path: Path) -> None:
    """`import rich` or JAX at the head of a module ended the script with a traceback."""
    code = "import bench.gpu.wheels, bench.gpu.session, bench.gpu.steps"
    found = subprocess.run([PYTHON, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_the_cache_folder_is_known_without_platformdirs(tmp_path: Path) -> None:
    """The script stopped at once where that package is missing; it names the folder itself."""
    used = "from jax_stitch.util.store import location; print(location.folder())"
    code = f"import sys; sys.modules['platformdirs'] = None; {used}"
    environment = {**os.environ, "JAX_STITCH_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    found = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == str(tmp_path), found.stderr
