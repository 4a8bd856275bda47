"""Runs the examples of a Markdown page, and compares what they print with what the page says they print.

All Python blocks of a page run from top to bottom in one namespace. A block of any other language that follows one with
nothing between them is its output; ``...`` in it stands for any text. Code that readers need not see stands in comments
that begin with ``<!-- run``. Lines of shell blocks run too where an output follows; elsewhere it is
enough that what they call exists.

``python -m docs.tools.snippets docs/quickstart.md`` compares; with ``--write`` it writes the outputs into the page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from docs.tools import shell

BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$"
    r"|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
INPUTS = ("python", "sh")
FIGURE = re.compile(r" *[-+]?\d[\d.,]*(e[-+]?\d+)?( ?(ns|us|ms|s|B|kB|MB|GB|%|x))?\b| *-{2,}")
"""A number with its unit, and the lines of tables, which are as long as the numbers."""
MODEL = r"(?<= on cpu: )[^,\n]*"
"""The name of the processor that was measured."""
LINE_NUMBER = re.compile(r"(\.py):\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
"""They change with every edit of the page above."""
WRITTEN_WITH = "0.12."
"""The versions of jax that the outputs in pages and notebooks are from."""
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Snippet:
    """Code of a page, with the output that the page gives for it."""

    page: Path
    line: int
    language: str
    code: str
    output: str | None = None
    measured: bool = False
    """Whether the output has figures that differ from run to run."""
    place: tuple[int, int] = (0, 0)
    """Where in the page the output is, as offsets."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


class Mismatch(AssertionError):
    """An example prints something else than the page says."""


def snippets(page: Path) -> list[Snippet]:
    """The code of a page in its order."""
    text = page.read_text(encoding="utf-8")
    found: list[Snippet] = []
    end = -1
    for block in BLOCK.finditer(text):
        language, code, inner = _content(block)
        if language in INPUTS:
            found.append(Snippet(page, text.count("\n", 0, block.start()) + 2, language, code))
            end = block.end()
        elif end >= 0 and not text[end : block.start()].strip():
            last = found.pop()
            measured = "title=" in (block["options"] or "")
            found.append(replace(last, output=code, measured=measured, place=inner))
            end = -1
    return found


def _content(block: re.Match[str]) -> tuple[str, str, tuple[int, int]]:
    """Language, code without the block's indentation, and where the code is."""
    if block["hidden"] is not None:
        return "python", block["hidden"], block.span("hidden")
    code = re.sub(f"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
    return block["language"], code, block.span("code")


def printed(snippet: Snippet, namespace: dict[str, Any]) -> str | None:
    """Runs a snippet; what it printed, or None where it was only looked at."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if snippet.language == "python":
            _execute(snippet, namespace)
        elif not _shell(snippet):
            return None
    return out.getvalue()


def _execute(snippet: Snippet, namespace: dict[str, Any]) -> None:
    """Runs Python as a file in the working folder, with the page's numbers of lines: plans quote it from there."""
    file = Path(snippet.page.with_suffix(".py").name)
    code = "\n" * (snippet.line - 1) + snippet.code
    file.write_text(_overlaid(file.read_text(encoding="utf-8"), code) if file.exists() else code, encoding="utf-8")
    exec(compile(code, file.name, "exec"), namespace)


def _overlaid(first: str, second: str) -> str:
    """Two texts of which no line is in both."""
    rows = first.splitlines()
    new = second.splitlines()
    rows += [""] * (len(new) - len(rows))
    return "\n".join(n or r for r, n in zip(rows, new + [""] * (len(rows) - len(new)), strict=True)) + "\n"


def _shell(snippet: Snippet) -> bool:
    """Runs a shell block's commands where an output follows, else looks whether they exist; did they run?"""
    for line in snippet.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if snippet.output is not None:
            shell.command(words[2])(words[3:])
        elif wrong := shell.fault(words):
            raise Mismatch(f"{snippet}: {wrong}")
    return snippet.output is not None


def agrees(snippet: Snippet, found: str) -> bool:
    """Is what was printed what the page says?"""
    pattern, text = (re.sub(LINE_NUMBER, r"\1", _tidy(t)) for t in (snippet.output or "", found))
    if snippet.measured:
        # Columns are as wide as their figures.
        pattern, text = (re.sub(" +", " ", re.sub(FIGURE, "#", re.sub(MODEL, "#", t))) for t in (pattern, text))
    return re.fullmatch(".*?".join(re.escape(part) for part in pattern.split("...")), text, re.DOTALL) is not None


def _tidy(text: str) -> str:
    """Without white space at the ends of lines and of the text."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def runs(page: Path) -> Iterator[tuple[Snippet, str | None]]:
    """Runs a page in the working folder; yields each snippet with what it printed, or None where it was not run."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for snippet in snippets(page):
        yield snippet, printed(snippet, namespace)


def outputs_hold() -> bool:
    """Whether outputs can be compared here. Each version of XLA makes other kernels; under others examples only run."""
    return jax.__version__.startswith(WRITTEN_WITH)


def check(page: Path, compared: bool = True) -> None:
    """Raises ``Mismatch`` where an example prints something else than the page says."""
    for snippet, found in runs(page):
        if compared and snippet.output is not None and found is not None and not agrees(snippet, found):
            raise Mismatch(f"{snippet}: the page says\n{_tidy(snippet.output)}\nand it printed\n{_tidy(found)}")


def write(page: Path) -> int:
    """Writes the outputs that differ into the page; how many there were."""
    text = page.read_text(encoding="utf-8")
    changed = 0
    for snippet, found in reversed(list(runs(page))):
        if snippet.output is None or found is None or agrees(snippet, found):
            continue
        text = f"{text[: snippet.place[0]]}{_tidy(found)}\n{text[snippet.place[1] :]}"
        changed += 1
    page.write_text(text, encoding="utf-8")
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Compares or writes pages."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.snippets", description="run the examples of pages")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    options = parser.parse_args(argv)
    pages = [page.resolve() for page in options.pages]
    sys.path.insert(0, str(ROOT))  # in place of the working folder, which changes
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.setdefault("JAX_STITCH_MODE", "now")
        from jax_stitch.util import platform

        platform.settle()
        for page in pages:
            if options.write:
                print(f"{page.name}: {write(page)} outputs written", file=sys.stderr)
            else:
                check(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
