"""Reads the tables of small modules that stand in text files beside this one."""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass

from jaxlib import _hlo

HERE = pathlib.Path(__file__).parent
MARK = "¦"


def _sections(file: str) -> dict[str, str]:
    parts = re.split(r"^=== (.*)\n", (HERE / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    names, texts = parts[::2], parts[1::2]
    assert len(set(names)) == len(names), "a name is used twice"
    return dict(zip(names, (text.rstrip() + "\n" for text in texts), strict=True))


NEWER = {"elementwise-exp2": "kExp2", "elementwise-log2": "kLog2", "data-shuffle": "kShuffle"}
"""The corners of opcodes that not every version of jaxlib has, with XLA's names of these."""


def corners(*, newer: bool = False) -> dict[str, str]:
    """Return the modules that the XLA installed here takes, by name; with ``newer`` those too that another takes."""
    sections = _sections("corners.txt")
    computations = {name: text for name, text in sections.items() if name.startswith("%")}
    known = {name for name in sections if newer or name not in NEWER or hasattr(_hlo.HloOpcode, NEWER[name])}
    return {name: _module(text, computations) for name, text in sections.items() if name in known - computations.keys()}


def _module(text: str, computations: dict[str, str]) -> str:
    if text.startswith("HloModule"):
        return text
    used = [c for name, c in computations.items() if re.search(rf"{name}\b", text)]
    return "\n".join(["HloModule corner\n", *used, f"ENTRY %main {{\n{text}}}\n"])


def ill_typed() -> dict[str, str]:
    """Modules that parse but are not well formed, by a part of their fault."""
    computations = {name: text for name, text in _sections("corners.txt").items() if name.startswith("%")}
    return {message: _module(text, computations) for message, text in _sections("ill_typed.txt").items()}


@dataclass(frozen=True)
class Wrong:
    """A text that is not HLO, where (from 1) and how the error says so."""

    message: str
    text: str
    line: int
    column: int


def wrong() -> list[Wrong]:
    """Each section is named for its message; a bar ¦ marks the place of the error and is not part of the text."""
    cases = []
    for message, marked in _sections("wrong.txt").items():
        before, after = marked.split(MARK)
        line = before.count("\n") + 1
        cases.append(Wrong(message, before + after, line, len(before) - (before.rfind("\n") + 1) + 1))
    return cases


def loose() -> dict[str, str]:
    """Modules that XLA takes and would not print so, by file and name."""
    computations = {name: text for name, text in _sections("corners.txt").items() if name.startswith("%")}
    found = {}
    for file in sorted(path.name for path in (HERE / "modules").glob("*.txt")):
        if file == "refused.txt":
            continue
        for name, text in _sections(f"modules/{file}").items():
            whole = _module(text, computations) if file.endswith(".body.txt") else text
            found[f"{file.split('.')[0]}: {name}"] = whole
    return found


def refused() -> dict[str, str]:
    """Texts that XLA's parser refuses, by what is wrong with them."""
    computations = {name: text for name, text in _sections("corners.txt").items() if name.startswith("%")}
    instructions = re.compile(r"\s*(?:ROOT )?[\w.]*\s*(?:=|f32)")
    found = {}
    for name, text in _sections("modules/refused.txt").items():
        alone = not name.startswith(("two instructions without", "a single")) and instructions.match(text)
        found[name] = _module(text, computations) if alone else text
    return found


@dataclass(frozen=True)
class Rule:
    """A module that follows a rule of the verifier, one that breaks it, and a part of the fault."""

    good: str
    bad: str
    fault: str


def rules() -> dict[str, Rule]:
    computations = {name: text for name, text in _sections("corners.txt").items() if name.startswith("%")}
    found = {}
    for title, text in _sections("rules.txt").items():
        name, fault = title.split(": ", 1)
        good, bad = text.split("---\n")
        found[name] = Rule(_module(good, computations), _module(bad, computations), fault)
    return found
