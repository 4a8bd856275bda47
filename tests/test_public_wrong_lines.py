"""Wrong command lines: exit status 2, at most three lines that say what to do, no traceback, nothing done before."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import jax_stitch
from jax_stitch import __main__ as command
from jax_stitch import __version__
from jax_stitch.__main__ import main
from jax_stitch.inspect.cli import arguments, command_errors
from jax_stitch.inspect.cli.command_errors import explained
from jax_stitch.util import progress

USER = """
import jax, jax.numpy as jnp
from jax_stitch import stitch_jit

def product(x, y=1.0):
    return x @ y

def fails(x):
    raise KeyError("no such\\nlayer")

def make_args():
    return (jnp.ones((64, 33)),)

def make_one():
    return jnp.ones((64, 33))

def make_none():
    return 1 / 0

number = 3
"""

FILES = {
    "user.py": USER,
    "broken.py": "import nowhere_to_be_found\n",
    "raising.py": "value = 1\nvalue / 0\n",
    "unfinished.py": "def f(:\n",
    "script.py": "import sys\nsys.exit('needs arguments')\n",
    "mistyped.py": "from jax_stitch import stitch_jit\nf = stitch_jit(lambda x: x, mode='nwo')\n",
}

WRONG = [
    ("", "name a command: plan, trace, compare"),
    ("pln user:product", "did you mean 'plan'"),
    ("frobnicate", "commands: plan, trace, compare"),
    ("plan", "package.module:function"),
    ("plan user", "write package.module:function"),
    ("plan user.py", "it is user:FUNCTION"),
    ("plan user.product", "did you mean user:product"),
    ("plan user:product --args f32[8,8],f32[8]", "there are spaces: f32[8,8] f32[8]"),
    ("plan user.py:product", "write user:product"),
    ("plan usr:product", "no module named 'usr'; did you mean 'user'"),
    ("plan user.nosuch:f", "no module named 'user.nosuch'"),
    ("plan user:prodct", "did you mean 'product'"),
    ("plan user:xyz", "functions there: stitch_jit, product, fails"),
    ("plan user:number", "no function, but of type int; functions there"),
    ("plan broken:f", "No module named 'nowhere_to_be_found'\nat broken.py:1"),
    ("plan raising:f", "ZeroDivisionError: division by zero\nat raising.py:2"),
    ("plan unfinished:f", "SyntaxError"),
    ("plan script:f", "SystemExit: needs arguments"),
    ("plan mistyped:f", "did you mean 'now'?\nat mistyped.py:2"),
    ("plan user:product", "missing a required argument: 'x'; give what it takes with --args"),
    ("plan user:product --args f32[8,8] 1 2", "(x, y=1.0): 3 arguments are given"),
    ("plan user:product --args f32[8,8] f32[9]", "contracting dimensions.*\nat user.py:6, in product: return x @ y"),
    ("plan user:fails --args f32[8]", "KeyError: .*\nat user.py:9, in fails"),
    ("compare user:fails --args f32[8]", "KeyError: .*\nat user.py:9, in fails"),
    ("plan jax.nn:softmax --args f32[8] f32[3,3]", "the function raised ConcretizationTypeError"),
    ("plan user:product --args", "--args: expected at least one argument"),
    ("plan user:product --args f32", "did you mean f32[], one element"),
    ("plan user:product --args 'f32(8,8)'", "did you mean f32[8,8]"),
    ("plan user:product --args 'float32 8x8'", "write dtype[sizes] as in f32[8192,1024] or float32"),
    ("plan user:product --args '[]'", "cannot read the argument '[]'"),
    ("plan user:product --args ''", "cannot read the argument ''"),
    ("plan user:product --args flot32[8]", "did you mean 'float32'"),
    ("plan user:product --args f64[4]", "JAX_ENABLE_X64=1"),
    ("plan user:product --args f32[4] --make-args user:make_args", "not both"),
    ("plan user:product --make-args user:make_one", "must return the tuple"),
    ("plan user:product --make-args user:make_none", "division by zero\nat user.py:18"),
    ("plan user:product --make-args user:mak_args", "did you mean 'make_args'"),
    ("compare user:product --args f32[9999999,99999999999]", "not enough memory"),
    ("plan user:product --args f32[8,8] --devcie h200", "no option --devcie; did you mean --device"),
    ("plan user:product --args f32[8,8] --device h300", "Did you mean 'h200'"),
    ("compare user:product --args f32[8,8] --devices h20", "Did you mean 'h200'"),
    ("plan user:product --args f32[8,8] --planner beem", "did you mean 'beam'"),
    ("plan user:product --args f32[8,8] --autotune top4", "did you mean 'top3'"),
    ("plan user:product --args f32[8,8] f32[8,8] --templates nothing[GRID]", "nothing"),
    ("plan user:product --optimize maybe", "none of auto, yes, no"),
    ("plan user:product --args f32[8,8] f32[8,8] --html nowhere/plan.html", "there is no folder nowhere"),
    ("plan user:product --args f32[8,8] f32[8,8] --html .", "it is a folder"),
    ("plan user:product --args f32[8,8] f32[8,8] --html", "--html: expected one argument"),
    ("plan user:product user:fails", "'user:fails' is one word too many"),
    ("compare user:product --args f32[8,8] --seconds -1", "no number of seconds above 0"),
    ("diff user:product --args f32[8,8] f32[8,8] --devices h200", "name two to compare"),
    ("diff user:product --args f32[8,8] f32[8,8] --devices h200 a100 t4", "name two to compare"),
    ("diff user:product --args f32[8,8] f32[8,8] --planners beam elp", "did you mean 'ilp'"),
    ("cache cler", "did you mean 'clear'"),
    ("measure --device h300", "Did you mean 'h200'"),
    ("minimise", "required: FOLDER"),
    ("minimise nowhere", "there is no folder nowhere"),
    ("devices --jsn", "no option --jsn; did you mean --json"),
]
"""Lines, and what is to be said about them; a regular expression where there is a ``.*``."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's files in the working directory."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        sys.modules.pop(name.removesuffix(".py"), None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def message(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said, less what was told of progress."""
    shown = capsys.readouterr()
    assert not shown.out and "Traceback" not in shown.err, shown
    return re.sub(r"^\.\.\. .*\n", "", shown.err, flags=re.MULTILINE)


def test_wrong_lines_are_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Tracebacks, pages of usage, silence, exit statuses of success, and words that do not help."""
    assert len(WRONG) > 40
    for line, wanted in WRONG:
        assert main(shlex.split(line)) == 2, line
        said = message(capsys)
        lines = said.splitlines()
        assert said.startswith("error: ") and len(lines) <= 3 and max(map(len, lines)) <= 520, (line, said)
        assert re.search(wanted, said) if ".*" in wanted else wanted in said, (line, said)


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [("JAX_STITCH_MODE", "nwo", "did you mean 'now'"), ("JAX_STITCH_STRICT", "yes", "'1', '0'")],
)
def test_wrong_variables(
    variable: str, value: str, wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["plan", "user:product", "--args", "f32[8,8]", "f32[8,8]"]) == 2
    said = message(capsys)
    assert f"${variable} is {value!r}" in said and wanted in said


def test_no_compiler(tmp_path: Path) -> None:
    """Launches are counted in a compiled program, which needs a kernel to name: in a process that has none yet."""
    missing = {"CXX": "no-such-compiler", "JAX_STITCH_CACHE_DIR": str(tmp_path / "empty")}
    command = [sys.executable, "-m", "jax_stitch", "plan", "jax.nn:softmax", "--args", "f32[61,131]", "--device", "cpu"]
    ended = subprocess.run(command, env=os.environ | missing, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2
    assert "no-such-compiler" in ended.stderr and "Traceback" not in ended.stderr


def test_the_traceback_is_there_for_who_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "user:fails", "--args", "f32[8]", "--traceback"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said and 'raise KeyError("no such' in said and "\nerror: the function raised" in said


def test_an_error_of_ours_is_not_blamed_on_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> Any:
        return arguments.argument(None)  # type of what our own code would get wrong

    monkeypatch.setattr(command, "subject", broken)
    assert main(["plan", "user:product"]) == 1
    said = message(capsys)
    assert "an error of JAX Stitch, " in said and "arguments.py" in said and "report it" in said


def test_interrupted_and_cut_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "subject", interrupted)
    assert main(["plan", "user:product"]) == 130
    assert message(capsys) == "interrupted\n"


def test_a_full_disk_is_no_error_of_ours() -> None:
    lines, status = explained(OSError(28, "No space left on device", "/there/plan.html"))
    assert status == 1 and "No space left" in lines[0] and "room" in lines[1]


def test_nothing_is_written_where_only_the_line_is_read(tmp_path: Path) -> None:
    """The file is tried before the work; it must not be left behind, nor an older one be emptied."""
    old = tmp_path / "old.html"
    old.write_text("kept")
    for page in ("new.html", "old.html"):
        assert main(["plan", "user:nosuch", "--html", page]) == 2
    assert old.read_text() == "kept" and not (tmp_path / "new.html").exists()


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["--version"], ["--help"], ["plan", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"jax_stitch {__version__} (jax ") and "--open" in shown and "diff" in shown


def test_diff_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)))
    line = "diff jax.nn:softmax --args f32[64,128] --planners beam none --device cpu"
    assert main(shlex.split(line.replace("--device cpu", "--devices cpu"))) == 0
    assert "beam and none" in capsys.readouterr().out
    assert main(shlex.split("plan jax.nn:softmax --args float32[64,128] --device cpu --html p.html --open")) == 0
    shown = capsys.readouterr()
    assert opened == [(tmp_path / "p.html").as_uri()] and (tmp_path / "p.html").stat().st_size > 1000
    assert "fewer" in shown.out and "0.00x" not in shown.out and "no browser was found" in shown.err


def test_long_steps_are_told_of_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirected to a file, a command that worked for minutes said two lines."""
    monkeypatch.setattr(progress, "EVERY", 0.05)
    said: list[str] = []
    with progress._lines(said.append) as step:
        step("planning")
        deadline = time.monotonic() + 60
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        step("counting")
    assert said[0] == "planning" and "counting" in said
    assert all(re.fullmatch(r"planning \(\d+ s\)", line) for line in said[1:3])
    after = len(said)
    time.sleep(0.12)
    assert len(said) == after


@pytest.mark.parametrize("library", [jax, np, pathlib, jax_stitch, pytest])
def test_libraries_behind_links_are_libraries(library: ModuleType, tmp_path: Path) -> None:
    """With a link for a virtual environment, as tools make them, a line of JAX's was shown in place of the user's."""
    file = Path(str(library.__file__))
    (tmp_path / "link").symlink_to(file.parent.parent)
    frame = traceback.FrameSummary(str(tmp_path / "link" / file.parent.name / file.name), 1, "f", line="")
    assert command_errors._is_of_others(frame) is (library is not jax_stitch)
    assert command_errors._is_own(frame) is (library is jax_stitch)
    assert not command_errors._is_of_others(traceback.FrameSummary(str(tmp_path / "user.py"), 1, "f", line=""))
