"""Do the commands of a shell example exist: modules, commands and options, targets of make, extras of pip, scripts?"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WITH_COMMANDS = ("jax_stitch", "bench")
"""Modules whose command line has commands, each with its own help."""


def fault(words: Sequence[str]) -> str | None:
    """What is wrong with a command line, or None."""
    words = [word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    return next(_faults(words), None) if words else None


def _faults(words: Sequence[str]) -> Iterator[str]:
    program, rest = words[0], list(words[1:])
    if re.fullmatch(r"(.*/)?python3?", program) and rest[:1] == ["-m"]:
        yield from _module(rest[1:])
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        yield from (f"make has no target {word}" for word in rest if "=" not in word and word not in targets)
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        named = [name for word in rest for name in re.findall(r"\w+", "".join(re.findall(r"\[(.*)\]", word)))]
        yield from (f"there is no extra {name}" for name in named if name not in extras)
    elif program.endswith(".sh") and not (ROOT / program).exists():
        yield f"there is no script {program}"


def _module(words: Sequence[str]) -> Iterator[str]:
    """What is wrong with a module, its command and its options, or with files of the repository that it is given."""
    module, *rest = words
    if not _is_there(module):
        yield f"there is no module {module}"
    elif module in WITH_COMMANDS:
        name = next((w for w in rest if not w.startswith("-")), None)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit):
            command(module)([*([name] if name else []), "--help"])
        options = (w for w in rest if w.startswith("--"))
        yield from (
            f"python -m {module} {name} has no {option}"
            for option in options
            if not re.search(rf"{re.escape(option)}\b", shown.getvalue())
        )
    elif module in ("pytest", "docs.tools.snippets", "docs.tools.notebooks"):
        paths = (w for w in rest if "/" in w)
        yield from (f"there is no {path}" for path in paths if not (ROOT / path).exists())


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def command(module: str) -> Callable[[Sequence[str]], object]:
    """The ``main`` of ``python -m module``."""
    found = importlib.util.find_spec(f"{module}.__main__")
    return importlib.import_module(module if found is None else f"{module}.__main__").main
