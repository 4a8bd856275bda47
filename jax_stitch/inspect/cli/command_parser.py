"""The command line is read: what is mistyped is told what was meant, in a line or two, and nothing is done."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jax_stitch.util.suggestion import UsageError, suggestion

PROGRAM = "python -m jax_stitch"


class Parser(argparse.ArgumentParser):
    """``ArgumentParser`` that raises ``UsageError`` and suggests names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.options: list[str] = []
        self.commands: dict[str, Parser] = {}
        super().__init__(*args, **kwargs)

    def add_argument(self, *names: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument as in ``argparse``; the names of options are kept for suggestions."""
        self.options += [name for name in names if name.startswith("-")]
        return super().add_argument(*names, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise what ``main`` prints."""
        raise UsageError(f"{message}\n`{self.prog} --help` lists what there is")

    def read(self, line: Sequence[str]) -> argparse.Namespace:
        """Return the options of a whole line. Raises ``UsageError``."""
        first = next((word for word in line if not word.startswith("-")), None)
        if first is not None and first not in self.commands:
            raise UsageError(
                f"there is no command {first!r}{suggestion(first, self.commands)}\n"
                f"commands: {', '.join(self.commands)}; `{self.prog} --help` says what they do"
            )
        if first is None and not {"-h", "--help", "--version"} & {*line}:
            raise UsageError(f"name a command: {', '.join(self.commands)}; `{self.prog} --help` says what they do")
        options, unknown = self.parse_known_args(line)
        if unknown:
            self.commands[str(first)]._refuse(unknown[0])
        return options

    def _refuse(self, word: str) -> NoReturn:
        if word.startswith("-"):
            name = word.partition("=")[0]
            self.error(f"there is no option {name}{suggestion(name, self.options, quoted=False)}")
        self.error(f"{word!r} is one word too many")


def one_of(*known: str) -> Callable[[str], str]:
    """Return the type of an argument that is one of these words."""

    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}{suggestion(text, known)}")
        return text

    return read


def seconds(text: str) -> float:
    """Return the type of an argument that is a length of time."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return number


def new_file(text: str) -> Path:
    """Return the type of a file to be written: tried at once, and not after minutes of work."""
    path = Path(text)
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if not path.parent.is_dir():
            raise FileNotFoundError(0, f"there is no folder {path.parent}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            os.close(os.open(path, os.O_WRONLY))
        else:
            path.unlink()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {reason}; name a file elsewhere") from None
    return path
