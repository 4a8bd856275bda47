"""Links between files of the repository, for the site: written for a code host, where all files have pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Files at the root, and the pages that they are."""
LINK = re.compile(r"(?<!!)\[(?P<words>[^]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def linked(text: str, page: str) -> str:
    """Text in which links to files of the repository lead to pages, or are only words where there is no page."""
    source = next((name for name, made in PAGES.items() if made == page), f"docs/{page}")
    if page.startswith("notebooks/"):
        source = page
    at = (ROOT / source).parent

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:", target) or not (at / target).exists():
            return link[0]  # elsewhere, or wrong, which MkDocs tells
        found = (at / target).resolve().relative_to(ROOT).as_posix()
        inside = _page(found)
        if inside is None:
            return link["words"] if link["words"].startswith("`") else f"{link['words']} (`{found}`)"
        up = "../" * page.count("/")
        return f"[{link['words']}]({up}{inside}{link['anchor'] or ''})"

    return LINK.sub(replaced, text)


def _page(found: str) -> str | None:
    """The page, or other file of the site, that a file of the repository is."""
    if found in PAGES:
        return PAGES[found]
    if found in ("README.md", "examples"):
        return "index.md" if found == "README.md" else "examples.md"
    if found.startswith("notebooks/") and found.endswith(".ipynb"):
        return found.removesuffix(".ipynb") + ".md"
    return found.removeprefix("docs/") if found.startswith("docs/") and not found.startswith("docs/tools") else None
