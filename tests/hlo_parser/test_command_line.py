"""python -m hlo_parser."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from hlo_parser.__main__ import main

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
