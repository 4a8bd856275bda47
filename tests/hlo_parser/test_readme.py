"""The README's examples run, and it names all that the library has for its users."""

from __future__ import annotations

import pathlib
import re

import hlo_parser

TEXT = (pathlib.Path(hlo_parser.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_examples_run() -> None:
    scope: dict[str, object] = {}
    examples = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, scope)


def test_functions_are_named_and_described() -> None:
    for name in hlo_parser.__all__:
        value = getattr(hlo_parser, name)
        if callable(value):
            assert value.__doc__, f"{name} has no docstring"
            if name.islower():
                assert f"`{name}`" in TEXT or f"{name}(" in TEXT, f"{name} is not in the README"
