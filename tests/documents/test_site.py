"""The site: its pages, drawings and links, without building it; `make docs` builds it, with warnings as errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tools import draw, links
from docs.tools.notebook_pages import notebooks, page_of

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
MADE = {"architecture.md", "contributing.md", "changes.md", "reference/command_line.md", "examples.md"}
"""Pages that are made when the site is built, of files elsewhere and of what commands say of themselves."""


def pages_in(nav: Any) -> Iterator[str]:
    for entry in nav if isinstance(nav, list) else nav.values():
        if isinstance(entry, str):
            yield entry
        else:
            yield from pages_in(entry)


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    listed = set(pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert listed == written | MADE


def test_drawings_are_those_of_the_code() -> None:
    """A drawing was edited by hand, or its code was changed: run `python -m docs.tools.draw`."""
    for name, text in draw.drawings().items():
        assert (draw.PICTURES / name).read_text(encoding="utf-8") == text, name


def test_drawings_fit_their_frames() -> None:
    """Text or boxes that go over the edge are cut off: a width was changed, or a word grew."""
    for name, text in draw.drawings().items():
        ((width, height),) = [map(int, size) for size in re.findall(r'viewBox="0 0 (\d+) (\d+)" width', text)]
        for x, y, w, h in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', text):
            assert float(x) + float(w) <= width and float(y) + float(h) <= height, (name, x, y)
        for x, y, size, anchor, words in re.findall(
            r'<text x="([\d.]+)" y="([\d.]+)" font-size="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<', text
        ):
            wide = len(words) * float(size) * 0.62
            left = float(x) - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            assert left >= 0 and left + wide <= width + 10 and float(y) <= height, (name, words)


def test_every_picture_is_shown_somewhere() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in (*DOCS.rglob("*.md"), ROOT / "README.md"))
    for picture in (DOCS / "pictures").iterdir():
        assert picture.name in shown, f"{picture.name} is on no page"


def test_links_between_files_lead_to_files() -> None:
    """A page was renamed. What MkDocs makes of these links, `make docs` looks at."""
    for page in (*DOCS.rglob("*.md"), *ROOT.glob("*.md")):
        text = re.sub(r"^```.*?^```$|^<!--.*?^-->$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            made = (page.parent / target).resolve()
            known = made.is_relative_to(DOCS) and made.relative_to(DOCS).as_posix() in MADE
            assert re.match(r"[a-z]+:", target) or made.exists() or known, f"{page.name}: {target}"


def test_the_list_of_environment_variables_is_whole() -> None:
    """A variable was added to the package, or taken away, and the page was not."""
    listed = set(re.findall(r"^\| `(JAX_STITCH_\w+)`", (DOCS / "reference/environment.md").read_text("utf-8"), re.M))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "jax_stitch").rglob("*.py"))
    assert listed == set(re.findall(r"JAX_STITCH_[A-Z]+(?:_[A-Z]+)*\b", code))


def site(folder: Path, body: str, style: str = "") -> list[str]:
    (folder / "index.html").write_text(f'<h1 id="top">x</h1>{body}', encoding="utf-8")
    (folder / "other.html").write_text('<a name="named">y</a>', encoding="utf-8")
    (folder / "style.css").write_text(style, encoding="utf-8")
    return list(links.faults(folder))


def test_good_links_are_good(tmp_path: Path) -> None:
    body = '<a href="other.html#named">a</a><a href="#top">b</a><a href="https://jax.dev">c</a>'
    assert site(tmp_path, body + '<link rel="canonical" href="https://jax.dev"><img src="data:image/png,0">') == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="missing.html">a</a>', "no such file"),
        ('<a href="other.html#missing">a</a>', "nothing there has that name"),
        ('<a href="#missing">a</a>', "nothing there has that name"),
        ('<img src="missing.png">', "no such file"),
        ('<script src="https://example.org/a.js"></script>', "fetched from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "fetched from elsewhere"),
    ],
)
def test_bad_links_are_found(body: str, fault: str, tmp_path: Path) -> None:
    assert [fault in found for found in site(tmp_path, body)] == [True]


def test_fonts_from_elsewhere_are_found(tmp_path: Path) -> None:
    assert len(site(tmp_path, "", "@font-face { src: url('https://example.org/a.woff2'); }")) == 1


def test_notebooks_become_pages_with_their_pictures() -> None:
    """A picture of a notebook was lost on the way, or its heading is no title."""
    for path in notebooks():
        text, pictures = page_of(path)
        assert text.startswith("# ")
        assert len(pictures) == text.count(f"]({path.stem}_") > 0
