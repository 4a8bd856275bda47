"""`make demo`: a table at a glance, and a picture beside it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from jax_stitch.demo import __main__ as demo
from jax_stitch.demo.cases import CASES


def run(path: Path, *more: str) -> int:
    return demo.main(["--small", "--seconds", "0.05", "--picture", str(path), *more])


def test_it_shows_a_table_and_writes_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A demo that fails, shows no gain, prints kernels to who has not asked, or draws what no browser reads."""
    monkeypatch.setattr(demo, "CASES", CASES[:1])
    path = tmp_path / "demo.svg"
    assert run(path) == 0
    shown = capsys.readouterr().out
    assert "launches on H200" in shown and " agree" in shown and '#include "stitch.h"' not in shown
    assert re.search(r" [2-9] -> 1 ", shown) and "demo.svg" in shown
    drawn = xml.fromstring(path.read_text(encoding="utf-8"))
    texts = "\n".join("".join(t.itertext()) for t in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert re.search(r"[2-9] launches, ", texts) and "1 launch, " in texts and "Measured on this" in texts
    width = float(drawn.attrib["width"])
    blocks = list(drawn.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert len(blocks) > 4 and all(float(b.get("x", 0)) + float(b.attrib["width"]) <= width for b in blocks)


def test_a_wrong_device(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(tmp_path / "demo.svg", "--device", "h300") == 2
    assert "Did you mean 'h200'" in capsys.readouterr().err


@pytest.mark.slow
def test_all_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "demo.svg", "--source") == 0
    shown = capsys.readouterr().out
    assert shown.count(" agree") == 3 and shown.count('#include "stitch.h"') == 3
