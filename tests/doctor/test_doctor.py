"""``python -m jax_stitch doctor``: what it finds where all is well, and where something is broken."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import jax
import pytest

from jax_stitch.__main__ import main
from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.launch import native
from jax_stitch.inspect.doctor import Examination, Finding, Section, examination, examine, machine, software
from jax_stitch.util import store


def found(title: str) -> dict[str, Finding]:
    (section,) = (section for section in examine().sections if section.title == title)
    return {finding.name: finding for finding in section.findings}


def test_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A section that is missing, or an exit status that says that no kernel can run where one can."""
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{title}\n" in f"\n{shown}" for title, _ in examination.SECTIONS)
    assert "Stitched kernels can run here." in shown and "failed" not in shown
    assert main(["doctor", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["kernels_can_run"] and [s["title"] for s in read["sections"]] == [t for t, _ in examination.SECTIONS]


@pytest.mark.parametrize("command", ["no-such-compiler", "false", "true"])
def test_a_compiler_that_is_broken(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is not there, fails, or writes nothing, and is said to work, or ends the examination."""
    monkeypatch.setenv("CXX", command)
    sections = {"C++ compiler": machine.compiler()}
    stopping = [finding for finding in sections["C++ compiler"] if finding.stops_kernels]
    assert len(stopping) == 1 and stopping[0].advice
    assert not Examination(tuple(Section(title, found) for title, found in sections.items())).kernels_can_run


def test_a_compiler_whose_code_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is compiled and never run: what it computes is not looked at."""
    monkeypatch.setattr(machine, "_TEXT", machine._TEXT.replace("x + 1", "x + 2"))
    (*_, last) = machine.compiler()
    assert last.stops_kernels and "something else" in last.value


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache folder that is none, which is no error but slow, and about which nothing is said."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "file" / "folder"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        findings = found("cache")
    assert findings["writable"].value == "no" and store.FOLDER_VARIABLE in findings["writable"].advice
    assert not findings["writable"].stops_kernels


def test_others_can_write_to_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache that is never used, since other users can write to it."""
    folder = tmp_path / "open"
    folder.mkdir()
    os.chmod(folder, 0o777)
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder))
    assert found("cache")["writable"].value == "no"


def test_no_handler_and_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no kernel can be launched, and which counts as sound."""

    def missing() -> None:
        raise toolchain.CompilerMissing("install one")

    monkeypatch.setattr(native, "at_hand", lambda: None)
    monkeypatch.setattr(native, "library", missing)
    (finding,) = machine.launcher()
    assert finding.stops_kernels and finding.advice == "install one"


def test_jax_has_no_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A word in $JAX_PLATFORMS that ends the examination, or that each section complains of once more."""

    def refuse(*_: object) -> None:
        raise RuntimeError("Unable to initialize backend 'nope'")

    monkeypatch.setattr(machine.jax, "devices", refuse)
    monkeypatch.setattr(machine.jax, "default_backend", refuse)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("Unable to initialize backend 'nope'") == 1 and "Traceback" not in shown


def test_a_section_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """One defect of ours that hides all that the other sections have found."""

    def broken() -> tuple[Finding, ...]:
        raise ValueError("a defect")

    monkeypatch.setattr(examination, "SECTIONS", (("broken", broken), ("versions", software.versions)))
    first, second = examine().sections
    assert "ValueError: a defect" in first.findings[0].value and second.findings == software.versions()


def test_an_untested_jax_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of JAX that nobody has tested and that counts as tested."""
    monkeypatch.setattr(jax, "__version__", "0.99.0")
    (finding,) = (finding for finding in software.versions() if finding.name == "jax")
    assert "not tested" in finding.value and finding.advice
    (trial,) = software.trial()
    assert trial.value.startswith("none yet")
