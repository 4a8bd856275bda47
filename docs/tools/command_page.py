"""The page of the command line, made of what the commands say of themselves."""

from __future__ import annotations

import contextlib
import io
import os
import re

from jax_stitch import __main__ as commands


def command_line() -> str:
    """The page of the command line: what each command says of itself."""
    os.environ["COLUMNS"] = "88"  # what argparse takes for the width
    parts = ["# Command line", "What `python -m jax_stitch COMMAND --help` prints."]
    for command in ("", *command_names()):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            commands.main([*([command] if command else []), "--help"])
        title = f"## `{command}`\n\n" if command else ""
        parts.append(f"{title}```text\n{shown.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def command_names() -> list[str]:
    """The names of the commands, as the help lists them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        commands.main(["--help"])
    return re.findall(r"^    ([a-z]+)  ", shown.getvalue(), re.MULTILINE)
