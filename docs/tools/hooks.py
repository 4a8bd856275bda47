"""What MkDocs calls while it builds the site: pages that are made of files elsewhere in the repository.

The map, CONTRIBUTING and the changes lie where a code host looks for them; notebooks are JSON; commands know
their own options.
"""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.tools.command_page import command_line
from docs.tools.example_page import examples
from docs.tools.notebook_pages import notebooks, page_of
from docs.tools.page_links import PAGES, ROOT, linked

SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme fetches so that pages which are files can be searched."""


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
    files.append(File.generated(config, "examples.md", content=examples()))
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
