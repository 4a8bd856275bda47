"""``--hlo``: what the command line makes of good files, and what it says of wrong ones."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.__main__ import main
from tests.hlo_files.programs import COLUMNS, ROWS, TUPLES, forms, lowered, normalised, spread
from tests.hlo_parser.tables import loose, refused

X = jnp.ones((64, 32)), jnp.ones(32)
PROTO = bytes(lowered(normalised, *X).compiler_ir("hlo").as_serialized_hlo_module_proto())

ELIDED = ROWS.replace("zero = f32[] constant(0)", "zero = f32[] constant(0)\n  c = f32[64,32] constant({...})").replace(
    "divide(x, wide)", "divide(c, wide)"
)
DYNAMIC = "HloModule m\nENTRY e {\n  x = f32[<=8] parameter(0)\n  ROOT y = f32[<=8] add(x, x)\n}\n"
TOKEN = "HloModule m\nENTRY e {\n  t = token[] parameter(0)\n  ROOT a = token[] after-all(t)\n}\n"
OPAQUE = "HloModule m\nENTRY e {\n  t = opaque[] parameter(0)\n  ROOT c = f32[2] constant({1, 2})\n}\n"
INFEED = """HloModule m
ENTRY e {
  t = token[] after-all()
  i = (f32[3], token[]) infeed(t)
  ROOT r = f32[3] get-tuple-element(i), index=0
}
"""
CALLED = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="somebodys_kernel", api_version=API_VERSION_TYPED_FFI
}
"""
PYTHON = CALLED.replace("somebodys_kernel", "xla_ffi_python_cpu_callback")
FOREIGN = "module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = other.thing %x\n  return %y } }\n"
NO_FUNCTION = "module {\n}\n"
UNBOUNDED = """module { func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = stablehlo.negate %x : tensor<?xf32>
  return %y : tensor<?xf32> } }
"""


def _zip(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dump.hlo", ROWS)
    return path.read_bytes()


CONTENTS: dict[str, Callable[[Path], str | bytes]] = {
    "empty": lambda _: b"",
    "blank": lambda _: " \n\n\t\n",
    "random bytes": lambda _: np.random.default_rng(0).bytes(4096),
    "zeros": lambda _: bytes(1000),
    "gzip": lambda _: gzip.compress(ROWS.encode()),
    "zip": _zip,
    "program": lambda _: b"\x7fELF" + bytes(100),
    "picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(100),
    "UTF-16": lambda _: ROWS.encode("utf-16"),
    "truncated text": lambda _: ROWS[: len(ROWS) // 2],
    "truncated proto": lambda _: PROTO[: len(PROTO) // 2],
    "truncated bytecode": lambda _: forms(normalised, *X)["StableHLO bytecode"][:300],
    "exported": lambda _: jax.export.export(jax.jit(normalised))(*X).serialize(),
    "Python": lambda _: "import jax\n\ndef f(x):\n    return x + 1\n",
    "JSON": lambda _: '{"hlo": {"computations": []}}',
    "LLVM": lambda _: "define float @f(float %x) {\n  ret float %x\n}\n",
    "prose": lambda _: "Dear all,\nattached is the module that we talked about.\n",
    "unknown operation": lambda _: ROWS.replace("divide(", "devide("),
    "unknown operand": lambda _: ROWS.replace("divide(x, wide)", "divide(x, wild)"),
    "unknown type": lambda _: ROWS.replace("f32[64,32]", "f33[64,32]"),
    "wrong type": lambda _: ROWS.replace("sums = f32[64]", "sums = f32[65]"),
    "no instructions": lambda _: "HloModule m\nENTRY e {\n}\n",
    "dynamic shape": lambda _: DYNAMIC,
    "token": lambda _: TOKEN,
    "opaque": lambda _: OPAQUE,
    "foreign StableHLO": lambda _: FOREIGN,
    "no function": lambda _: NO_FUNCTION,
    "unbounded StableHLO": lambda _: UNBOUNDED,
    "several devices": lambda _: spread(4),
    "control characters": lambda _: ROWS.replace("divide(x, wide)", "divide(x, w\x1b[31mide)"),
}
"""Files that no plan for the CPU can be made of."""

OPTIONS: dict[str, tuple[str, list[str]]] = {
    "wrong module": (ROWS + COLUMNS, ["--module", "lines"]),
    "wrong number": (ROWS + COLUMNS, ["--module", "2"]),
    "module of one": (ROWS, ["--module", "other"]),
    "wrong device": (ROWS, ["--device", "h2000"]),
    "wrong planner": (ROWS, ["--planner", "beem"]),
    "wrong templates": (ROWS, ["--templates", "nothing[GRID]"]),
    "arguments": (ROWS, ["--args", "f32[64,32]"]),
}

NOT_RUN = {"elided": ELIDED, "infeed": INFEED, "Python": PYTHON, "several devices": spread(2)}


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """The message on the standard error, less what is told of progress."""
    shown = capsys.readouterr().err.splitlines()
    lines = shown[next(n for n, line in enumerate(shown) if line.startswith("error: ")) :]
    assert len(lines) <= 3 and not any("Traceback" in line for line in shown), shown
    assert all(len(line) <= 500 for line in lines)
    return "\n".join(lines)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_wrong_file_is_refused_in_three_lines(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches tracebacks, silence, and messages that do not name the file or say what to do."""
    content = CONTENTS[name](tmp_path / "archive")
    path = tmp_path / "dump"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["plan", "--hlo", str(path), "--device", "cpu"]) == 2
    message = told(capsys)
    assert str(path) in message
    assert any(word in message for word in ("give ", "mend ", "unpack ", "save ", "plan it ", "dump it ")), message
    assert all(line.isprintable() for line in message.splitlines())


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options = OPTIONS[name]
    (tmp_path / "dump.hlo").write_text(text)
    assert main(["plan", "--hlo", str(tmp_path / "dump.hlo"), *options]) == 2
    told(capsys)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 15])
def test_every_module_of_the_parser_s_tests_is_planned_or_refused(
    step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one process, of all those that XLA's parser reads and refuses: a plan or a message, never a traceback."""
    path = tmp_path / "module.hlo"
    statuses: dict[bool, list[int]] = {True: [], False: []}
    for good, texts in ((False, refused()), (True, dict(list(loose().items())[::step]))):
        for name, text in texts.items():
            path.write_text(text, newline="")
            status = main(["plan", "--hlo", str(path), "--device", "cpu"])
            shown = capsys.readouterr()
            assert "Traceback" not in shown.err, name
            if status == 0:
                assert "on cpu" in shown.out, name
            else:
                lines = shown.err.splitlines()
                said = lines[next(n for n, line in enumerate(lines) if line.startswith("error: ")) :]
                assert status == 2 and str(path) in said[0], name
            statuses[good].append(status)
    assert set(statuses[False]) == {2} and len(statuses[False]) >= 150
    assert statuses[True].count(0) > 0.8 * len(statuses[True])


def test_a_single_instruction_is_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a way in that takes less than the parser."""
    path = tmp_path / "one"
    path.write_text("y = f32[8] multiply(f32[8] a, f32[8] b)")
    assert main(["plan", "--hlo", str(path), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound_bytes"] == 3 * 8 * 4


def test_what_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inside.hlo").write_text(ROWS)
    for path, word in (
        (tmp_path / "nothing", "no file"),
        (tmp_path, "inside.hlo"),
        (Path("\0"), "cannot be read"),
        (Path(), "no file"),
    ):
        assert main(["plan", "--hlo", str(path) if path.name or path.is_absolute() else ""]) == 2
        assert word in told(capsys)


def test_a_command_is_about_one_thing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.hlo").write_text(ROWS)
    for line in (["plan"], ["plan", "m:f", "--hlo", str(tmp_path / "rows.hlo")], ["plan", "m:f", "--module", "rows"]):
        assert main(line) == 2
        assert "--hlo FILE" in told(capsys)


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_cannot_be_run_is_not_compared(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches runs that hang on the host, call what is not there, or compute with values that the text leaves out."""
    (tmp_path / "dump.hlo").write_text(NOT_RUN[name])
    assert main(["compare", "--hlo", str(tmp_path / "dump.hlo")]) == 2
    assert "cannot be run: " in told(capsys)


def test_what_cannot_be_run_may_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that the text leaves out change no plan; a note says so."""
    (tmp_path / "dump.hlo").write_text(ELIDED)
    assert main(["plan", "--hlo", str(tmp_path / "dump.hlo"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["kernels"] and "1 constants have no value in the text" in plan["notes"][0]


@pytest.mark.parametrize("form", ["HLO text", "optimized HLO module proto", "portable StableHLO"])
def test_a_good_file_is_planned_and_compared(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = forms(normalised, *X)[form]
    path = tmp_path / "dump"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["plan", "--hlo", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"]
    assert main(["compare", "--hlo", str(path), "--seconds", "0.01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] and found["error"]["against_float64"]


def test_a_plan_for_a_gpu_and_the_other_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two"
    path.write_text(ROWS + TUPLES)
    line = ["plan", "--hlo", str(path), "--device", "h200", "--source", "--html", str(tmp_path / "plan.html")]
    assert main(line) == 0
    shown = capsys.readouterr().out
    assert "rows on h200" in shown and '#include "stitch.h"' in shown and (tmp_path / "plan.html").exists()
    assert main(["plan", "--hlo", str(path), "--module", "tuples", "--optimize", "no"]) == 0
    assert "tuples on cpu" in capsys.readouterr().out


def test_arguments_of_ones_own_are_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches arguments that are checked only inside XLA, or not at all."""
    (tmp_path / "made.py").write_text(
        "import numpy as np\n\ndef right():\n    return (np.ones((64, 32), np.float32),)\n\n"
        "def wrong():\n    return (np.ones((64, 33), np.float32),)\n"
    )
    (tmp_path / "rows.hlo").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    line = ["compare", "--hlo", "rows.hlo", "--seconds", "0.01", "--make-args"]
    assert main([*line, "made:right"]) == 0
    capsys.readouterr()
    assert main([*line, "made:wrong"]) == 2
    assert "argument 0 (x) has to be float32[64,32], not float32[64,33]" in told(capsys)


def test_a_process_ends_with_two_and_no_traceback(tmp_path: Path) -> None:
    """The same as users meet it."""
    command = [sys.executable, "-m", "jax_stitch", "plan", "--hlo", str(tmp_path / "nothing.hlo")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 2 and run.stderr.startswith("error: there is no file") and "Traceback" not in run.stderr
