"""What MkDocs calls while it builds the site: pages that are made of files elsewhere in the repository.

The map, CONTRIBUTING and the changes lie where a code host looks for them, and the notebooks are JSON. Links between
all of these are written for a code host, and rewritten here for the site.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.tools.notebook_pages import notebooks, page_of
from jax_stitch import __main__ as commands

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Files at the root, and the pages that they are."""
SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(?<!!)\[(?P<words>[^]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills in the list of notebooks."""
    pages = [f"notebooks/{path.stem}.md" for path in notebooks()]
    for section in config.nav or []:
        if "Notebooks" in section:
            section["Notebooks"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    files.append(File.generated(config, "reference/command_line.md", content=command_line()))
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked(text, page)))
    for path in notebooks():
        text, pictures = page_of(path)
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=linked(text, page)))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of pages under ``docs/`` to files outside of it."""
    return linked(markdown, page.file.src_uri) if page.file.generated_by is None else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The theme fetches what lets files be searched from elsewhere; ours is beside the pages."""
    up = "../" * page.file.src_uri.count("/")
    return output.replace(SHIM, f"{up}offline_search.js")


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """The same on the page for what is not found."""
    return output.replace(SHIM, "/offline_search.js") if template_name == "404.html" else output


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
    if found == "README.md":
        return "index.md"
    if found.startswith("notebooks/") and found.endswith(".ipynb"):
        return found.removesuffix(".ipynb") + ".md"
    return found.removeprefix("docs/") if found.startswith("docs/") and not found.startswith("docs/tools") else None


def command_line() -> str:
    """The page of the command line: what each command says of itself."""
    os.environ["COLUMNS"] = "88"  # what argparse takes for the width
    parts = ["# Command line", "What `python -m jax_stitch COMMAND --help` prints."]
    for command in ("", *_commands()):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            commands.main([*([command] if command else []), "--help"])
        title = f"## `{command}`\n\n" if command else ""
        parts.append(f"{title}```text\n{shown.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _commands() -> list[str]:
    """The names of the commands, as the help lists them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        commands.main(["--help"])
    return re.findall(r"^    ([a-z]+)  ", shown.getvalue(), re.MULTILINE)
