"""README's programs run and print what it shows; its commands and links are there; its pictures are of this code."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import jax
import pytest

from jax_stitch.__main__ import _parser

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
MEASURED = re.compile(r"^(  time: |time on |largest error ).*", re.MULTILINE)
"""Lines whose figures are another time others."""


def fixed(text: str) -> str:
    """What is printed, with no figure in lines that hold measured ones, and columns one space apart."""
    text = MEASURED.sub(lambda line: re.sub(r"[\d.,]+(e-\d+)?%?( [mun]?s\b)?x?", "#", line[0]), text)
    return re.sub(r" {2,}|-{2,}", " ", text).strip()


def test_programs_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that raises, or whose output has changed since it was pasted."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    shown = [
        (code, after)
        for (kind, code), (after_kind, after) in itertools.pairwise(BLOCKS)
        if (kind, after_kind) == ("python", "text")
    ]
    assert len(shown) == 3 == sum(kind == "python" for kind, _ in BLOCKS)
    for code, output in shown:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(code, "README.md", "exec"), names)
        if jax.__version__.startswith("0.12."):  # XLA's kernels are others in other versions.
            assert fixed(printed.getvalue()) == fixed(output)
        assert printed.getvalue()
    assert (tmp_path / "plan.html").stat().st_size > 10_000


def test_commands_can_be_read() -> None:
    """A command with an option that is not there any more, or a target that `make` does not have."""
    lines = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    ours = [line for line in lines if line.startswith("python -m jax_stitch ")]
    assert len(ours) >= 4
    for line in ours:
        _parser().read(shlex.split(line, comments=True)[3:])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`", README):
        assert f"\n{target}:" in makefile, target
    for extra in re.findall(r"'\.\[(\w+)\]'", README):
        assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8"), extra


def test_links_and_pictures_are_there() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        assert (ROOT / target).exists(), target


def test_it_stays_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_picture_says_what_the_example_prints() -> None:
    """A picture of older plans: its first program is the example's."""
    picture = (ROOT / "docs" / "pictures" / "before_after.svg").read_text(encoding="utf-8")
    for row in ("6 launches, 269 MB", "1 launch, 105 MB", "least possible: 101 MB"):
        assert row in picture


@pytest.mark.slow
def test_the_picture_is_of_this_code() -> None:
    """`python -m bench.picture` draws it anew."""
    from bench import picture

    assert picture.FILE.read_text(encoding="utf-8") == picture.drawn()
