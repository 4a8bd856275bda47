"""``python -m docs.tools.links build/site``: are the links of a built site good, and does it need no network?

Every ``href`` and ``src`` inside the site must lead to a file, and to an element where it names one. Scripts, styles,
fonts and pictures must not come from elsewhere; links to other sites are counted, not followed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("use", "href")}
"""What a browser fetches by itself."""
NOT_FETCHED = {"canonical", "next", "prev", "edit", "alternate"}
"""Kinds of ``link`` elements that are only information."""


@dataclass
class Page(HTMLParser):
    """The links and names of a page."""

    path: Path
    links: list[tuple[str, str, bool]] = field(default_factory=list)
    """Element, target, and whether a browser fetches it by itself."""
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects what an element links to, and its name."""
        values = dict(attrs)
        for name in ("id", "name"):
            if values.get(name):
                self.names.add(str(values[name]))
        if tag == "link" and values.get("rel") in NOT_FETCHED:
            return
        for name in ("href", "src"):
            if values.get(name):
                self.links.append((tag, str(values[name]), (tag, name) in LOADED))


def faults(site: Path) -> Iterator[str]:
    """What is wrong with the links of a site, a line each."""
    read = cache(Page)
    for path in sorted(site.rglob("*.html")):
        for tag, target, fetched in read(path).links:
            parts = urlsplit(target)
            where = f"{path.relative_to(site)}: <{tag}> {target}"
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                if fetched:
                    yield f"{where}: fetched from elsewhere"
                continue
            found = _file(site, path, unquote(parts.path))
            if not found.is_file():
                yield f"{where}: there is no such file"
            elif parts.fragment and found.suffix == ".html" and unquote(parts.fragment) not in read(found).names:
                yield f"{where}: nothing there has that name"
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(r"url\(['\"]?(https?:[^)'\"]+)", path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: {target}: fetched from elsewhere"


def _file(site: Path, page: Path, target: str) -> Path:
    """The file that a path on a page means. The page for what is not found is read from any address."""
    if not target:
        return page
    found = site / target.lstrip("/") if target.startswith("/") else page.parent / target
    return found / "index.html" if target.endswith("/") or found.is_dir() else found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the faults; the exit status says whether there are any."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.links", description="check the links of a built site")
    parser.add_argument("site", type=Path)
    site = parser.parse_args(argv).site
    found = list(faults(site))
    for fault in found:
        print(fault, file=sys.stderr)
    pages = sum(1 for _ in site.rglob("*.html"))
    print(f"{pages} pages, {len(found)} bad links", file=sys.stderr)
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
