"""Pages of the site that are made of other files: their links, and the command line."""

from __future__ import annotations

import pytest

from docs.tools.command_page import command_line, command_names
from docs.tools.example_page import FOLDER, examples
from docs.tools.page_links import PAGES, ROOT, linked


@pytest.mark.parametrize(
    ("page", "text", "made"),
    [
        ("architecture.md", "[words](docs/glossary.md)", "[words](glossary.md)"),
        ("architecture.md", "[how](CONTRIBUTING.md)", "[how](contributing.md)"),
        ("architecture.md", "[tests](tests/conftest.py)", "tests (`tests/conftest.py`)"),
        ("how.md", "[the map](../ARCHITECTURE.md#the-idea)", "[the map](architecture.md#the-idea)"),
        ("how.md", "[loops](loops.md)", "[loops](loops.md)"),
        ("loops.md", "[it](../notebooks/cart_pole.ipynb)", "[it](notebooks/cart_pole.md)"),
        ("notebooks/cart_pole.md", "[it](devices.ipynb)", "[it](../notebooks/devices.md)"),
        ("reference/environment.md", "[options](../options.md)", "[options](../options.md)"),
        ("index.md", "[programs](../examples)", "[programs](examples.md)"),
        ("how.md", "[elsewhere](https://jax.dev)", "[elsewhere](https://jax.dev)"),
        ("how.md", "[wrong](no_such.md)", "[wrong](no_such.md)"),
        ("how.md", "![picture](pictures/level_grid.svg)", "![picture](pictures/level_grid.svg)"),
    ],
)
def test_links_lead_to_pages(page: str, text: str, made: str) -> None:
    """A link for a code host was left as it is, which the site does not have; or a wrong one was hidden from MkDocs."""
    assert linked(f"See {text}.", page) == f"See {made}."


def test_the_pages_of_files_at_the_root_have_these_files() -> None:
    assert [name for name in PAGES if not (ROOT / name).is_file()] == []


def test_the_command_line_has_every_command_with_its_options() -> None:
    page = command_line()
    assert {"plan", "compare", "devices", "cache"} <= set(command_names())
    for name in command_names():
        assert f"## `{name}`\n\n```text\nusage: python -m jax_stitch {name}" in page
    assert "--device NAME" in page and page.count("```") == 2 * (1 + len(command_names()))


def test_the_page_of_examples_has_every_program_with_its_text() -> None:
    """Code that is indented wrongly would end the folded block early."""
    page = examples()
    for path in FOLDER.glob("*.py"):
        assert f"python examples/{path.name}" in page
        last = path.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert f"\n    {last}\n    ```\n" in page
