"""python -m hlo_parser."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from hlo_parser.__main__ import main
from tests.hlo_parser.tables import loose, refused

GOOD = (
    "HloModule m\n\nENTRY %e (x: f32[2]) -> f32[2] {\n  %x = f32[2] parameter(0)\n  ROOT %y = f32[2] negate(%x)\n}\n\n"
)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "m.hlo"
    path.write_text(GOOD)
    return path


def test_check(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: well formed\n"
    file.write_text(GOOD.replace("negate", "negatte"))
    assert main(["check", str(file)]) == 0
    assert "note: %y, %e: unknown opcode 'negatte'; did you mean 'negate'?" in capsys.readouterr().out
    file.write_text(GOOD.replace("f32[2] negate", "f32[3] negate").replace("-> f32[2]", "-> f32[3]"))
    assert main(["check", str(file)]) == 1
    assert "%y, %e: the result should be f32[2], not f32[3]" in capsys.readouterr().out


def test_text_that_is_wrong(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD.replace("negate(%x)", "negate(%z)"))
    for command in ("check", "print", "stats", "dot"):
        assert main([command, str(file)]) == 1
        assert capsys.readouterr().err.startswith(f"{file}:5:27: no instruction 'z'")


def test_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "no/such/file"]) == 2
    assert capsys.readouterr().err == "no/such/file: No such file or directory\n"


def test_print(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print", str(file)]) == 0
    assert capsys.readouterr().out == GOOD


def test_stats(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(file)]) == 0
    assert "module m: 1 computations, 2 instructions (2 in the entry)" in capsys.readouterr().out
    assert main(["stats", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["opcodes"] == {"parameter": 1, "negate": 1} and found["parameter_bytes"] == found["result_bytes"] == 8


def test_dot(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dot", str(file)]) == 0
    text = capsys.readouterr().out
    assert '"x" -> "y";' in text and text.startswith('digraph "e" {') and text.endswith("}\n")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert main(["dot", "--computation", "f", str(file)]) == 1
    assert "there is no computation 'f'" in capsys.readouterr().err


SEVERAL = GOOD + GOOD.replace("HloModule m", "HloModule n").replace("negate", "abs")


def test_several_modules_and_files(
    file: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SEVERAL)
    other = tmp_path / "other.hlo"
    other.write_text("ENTRY e { ROOT x = f32[] constant(1) }")
    assert main(["check", str(file), str(other)]) == 0
    out = capsys.readouterr().out
    assert out == f"{file}[1]: well formed\n{file}[2]: well formed\n{other}: well formed\n"
    assert main(["print", str(file)]) == 0
    assert capsys.readouterr().out == SEVERAL
    other.write_text("ENTRY e { ROOT x = f32[] konstant }")
    assert main(["check", str(other), str(file)]) == 1
    found = capsys.readouterr()
    assert found.err.startswith(f"{other}:1:") and "^" in found.err and f"{file}[2]: well formed" in found.out


def test_the_place_is_that_in_the_file(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error in the second module has its line in the file, and names of the first are not known in it."""
    file.write_text(GOOD + GOOD.replace("negate(%x)", "negate(%z)"))
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:12:27: no instruction 'z'")


def test_strict(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("ENTRY e { ROOT x = f32[] constant(1) }")
    assert main(["check", str(file)]) == 0
    assert main(["check", "--strict", str(file)]) == 1
    assert "expected 'HloModule'" in capsys.readouterr().err


def test_diff(file: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(GOOD.replace("%y", "%other"))
    assert main(["diff", str(file), str(other)]) == 0
    assert capsys.readouterr().out == ""
    other.write_text(GOOD.replace("negate", "abs"))
    assert main(["diff", str(file), str(other)]) == 1
    assert "opcode: negate -> abs" in capsys.readouterr().out
    other.write_text(SEVERAL)
    assert main(["diff", str(file), str(other)]) == 1
    assert "has 1 modules" in capsys.readouterr().err
    assert main(["diff", str(file), "no/such/file"]) == 2


def test_find(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "negate($x)", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: %e: ROOT %y = f32[2] negate(%x)  ($x=%x)\n"
    assert main(["find", "abs", str(file)]) == 1
    assert capsys.readouterr().out == ""
    assert main(["find", "abs(", str(file)]) == 2
    assert capsys.readouterr().err.startswith("pattern:1:5: expected a pattern")


def test_every_loose_and_every_refused_text(file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A message for each, and never a traceback."""
    for texts, command in ((loose(), "print"), (refused(), "check")):
        for name, text in texts.items():
            file.write_text(text, newline="")
            status = main([command, str(file)])
            found = capsys.readouterr()
            if command == "print":
                assert status == 0 and found.err == "" and found.out.startswith("HloModule "), name
            else:
                first, *_, caret = found.err.rstrip("\n").split("\n")[:3]
                assert status == 1 and found.out == "", name
                assert first.startswith(f"{file}:") and caret.strip() == "^", name


def test_standard_input_and_a_reader_that_stops() -> None:
    command = [sys.executable, "-m", "hlo_parser", "print", "-"]
    done = subprocess.run(command, input=GOOD, capture_output=True, text=True, check=True)
    assert done.stdout == GOOD
    many = GOOD.replace("ROOT", "".join(f"%n{n} = f32[2] negate(%x)\n" for n in range(20_000)) + "ROOT")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(many)
    process.stdin.close()
    assert process.stderr.read() == "" and process.wait() == 0
