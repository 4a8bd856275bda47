"""Every example of the documentation runs, and prints what its page says; and the tool that tells would tell."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from docs.tools import snippets
from docs.tools.snippets import Mismatch, check

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
PAGES = [page for page in FILES if snippets.snippets(page)]


@pytest.mark.every_case
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """What the package prints, or plans, was changed: run `python -m docs.tools.snippets --write` on the page."""
    with contextlib.chdir(tmp_path):
        check(page, compared=snippets.outputs_hold())


def test_no_page_has_output_of_nothing() -> None:
    """An example was taken away, and what it printed was left: nothing would compare it with anything."""
    for page in (page for page in PAGES if page.parent != ROOT):  # the map shows shortened texts
        lines = page.read_text(encoding="utf-8").splitlines()
        given = sum(line.strip().startswith(("```text", "```cpp")) for line in lines)
        assert given == sum(found.output is not None for found in snippets.snippets(page)), page.name


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ('print("one")', "two"),
        ('print("one", 2)', "one 3"),
        ('print("a\\nb")', "a"),
        ('print("a")', "a\nb"),
        ('print("size 12 kB of x")', "size ... of y"),
    ],
)
def test_another_output_is_found(code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mismatch, match=r"page\.md:2"):
        check(page(tmp_path, f"```python\n{code}\n```\n\n```text\n{output}\n```\n"))


def test_dots_and_figures_of_a_machine_are_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(page(tmp_path, '```python\nprint("a b c")\n```\n\n```text\na ... c\n```\n'))
    measured = '```python\nprint("took 3.4 ms")\n```\n\n```text title="here"\ntook {}\n```\n'
    check(page(tmp_path, measured.format("12 us")))
    with pytest.raises(Mismatch):
        check(page(tmp_path, measured.format("no time")))
    table = '```python\nprint("what   gain\\n----  -----\\ntime  4.11x")\n```\n\n```text title="here"\n{}\n```\n'
    check(page(tmp_path, table.format("what  gain\n----  ----\ntime  4.6x")))
    device = '```python\nprint("f on cpu: Xeon(R), 2 cores, 22 GB/s")\n```\n\n```text title="here"\n{}\n```\n'
    check(page(tmp_path, device.format("f on cpu: AMD EPYC, 4 cores, 32 GB/s")))
    with pytest.raises(Mismatch):
        check(page(tmp_path, device.format("f on h200: AMD EPYC, 4 cores, 32 GB/s")))


def test_an_example_that_raises_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError):
        check(page(tmp_path, "```python\n1 / 0\n```\n"))


def test_hidden_code_runs_and_blocks_share_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(
        page(
            tmp_path, "<!-- run\nx = 3\n-->\n\n```python\nx += 1\n```\n\n```python\nprint(x)\n```\n\n```text\n4\n```\n"
        )
    )


@pytest.mark.parametrize(
    "command",
    [
        "python -m jax_stitch plan a:b --no-such",
        "python -m jax_stitch no-such --json",
        "python -m no_such_module",
        "python -m tests.no_such_module",
        ".venv/bin/python -m pytest tests/no_such.py -q",
        "JAX_STITCH_DEBUG=1 python -m no_such_module",
        "make no-such",
        "pip install '.[no_such]'",
        "bench/no_such.sh",
    ],
)
def test_commands_that_do_not_exist_are_found(command: str, tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="no"):
        check(page(tmp_path, f"```sh\n{command}\n```\n"))


def test_commands_that_exist_are_not_found_wrong(tmp_path: Path) -> None:
    lines = "make test WORKERS=2\npip install '.[cuda13,plan]'\nbench/gpu.sh\npython script.py\n# words\n"
    check(page(tmp_path, f"```sh\n{lines}python -m jax_stitch plan a:b --device h200  # words\n```\n"))


def test_write_gives_the_page_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several outputs in one page: writing the first must not move the second."""
    monkeypatch.chdir(tmp_path)
    text = (
        "```python\nprint('long ' * 9)\n```\n\n```text\n```\n\n```python\nprint(2)\n```\n\n```text\nold\n```\n\nend\n"
    )
    path = page(tmp_path, text)
    assert snippets.write(path) == 2
    check(path)
    assert path.read_text(encoding="utf-8").endswith("```text\n2\n```\n\nend\n")
