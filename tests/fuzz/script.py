"""A program from a file: one that was found and reduced, or written by hand. It defines ``f`` and ``args``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Script:
    """What ``tests.fuzz.program.Program`` is to a process that runs it. Statements after ``args`` are left out."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def x64(self) -> bool:
        return '"jax_enable_x64", True' in self.text

    @property
    def operations(self) -> list[str]:
        return [self.path.stem]

    def _space(self) -> dict[str, Any]:
        tree = ast.parse(self.text)
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign)
        kept = [s for s in tree.body if isinstance(s, kinds)]
        last = next(k for k, s in enumerate(kept) if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "args")
        space: dict[str, Any] = {}
        exec(compile(ast.Module(kept[: last + 1], []), str(self.path), "exec"), space)
        return space

    def function(self) -> Callable[..., Any]:
        return self._space()["f"]

    def arguments(self) -> list[np.ndarray]:
        return [np.asarray(a) for a in self._space()["args"]]
