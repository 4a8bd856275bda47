"""A program as data: inputs, statements with functions inside them, outputs; it prints as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.fuzz.values import SPACE

_WORD = re.compile(r"\b[a-z]\d+\b")
"""Names of values (``x0``, ``v3``, ``w12``) and of functions inside statements (``g4``)."""


def names_in(text: str) -> list[str]:
    """Names of values and functions in an expression, each once."""
    return list(dict.fromkeys(_WORD.findall(text)))


@dataclass(frozen=True)
class Function:
    """A function inside a statement, such as a loop's body. It may use names from around it."""

    name: str
    parameters: tuple[str, ...]
    statements: tuple[Statement, ...]
    returns: str

    @property
    def lines(self) -> list[str]:
        body = [line for s in self.statements for line in s.lines] + [f"return {self.returns}"]
        return [f"def {self.name}({', '.join(self.parameters)}):", *("    " + line for line in body)]


@dataclass(frozen=True)
class Statement:
    """``targets = text``, after the definitions of the functions that the text uses."""

    targets: tuple[str, ...]
    text: str
    op: str
    functions: tuple[Function, ...] = ()
    single: bool = True
    """Whether the text is one array, and not a structure of arrays."""

    @property
    def lines(self) -> list[str]:
        before = [line for f in self.functions for line in f.lines]
        if self.single:
            return [*before, f"{self.targets[0]} = {self.text}"]
        names = ", ".join(self.targets) + "," * (len(self.targets) == 1)
        return [*before, f"{names} = jax.tree.leaves({self.text})"]

    @property
    def uses(self) -> frozenset[str]:
        """Every name that it may read."""
        return frozenset(names_in("\n".join(self.lines))) - frozenset(self.targets)


@dataclass(frozen=True)
class Program:
    """A function ``f`` of ``inputs``, each with the NumPy expression of its value."""

    inputs: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    x64: bool = False
    types: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Dtype and shape of every value by name, also of those inside functions."""

    @property
    def text(self) -> str:
        lines = [line for s in self.statements for line in s.lines]
        names = ", ".join(name for name, _ in self.inputs)
        results = ", ".join(self.outputs) + "," * (len(self.outputs) == 1)
        return "\n".join([f"def f({names}):", *("    " + line for line in lines), f"    return {results}"])

    def script(self, ending: Sequence[str] = ()) -> str:
        """The program as a file of its own; ``ending`` runs ``f`` on ``args`` some way."""
        wide = ['jax.config.update("jax_enable_x64", True)'] if self.x64 else []
        last = ending or (
            "from jax_stitch import stitch_jit",
            'print("plain", jax.jit(f)(*args))',
            'print("stitched", stitch_jit(f, mode="now")(*args))',
        )
        imports = [line for line in last if line.startswith(("from ", "import "))]
        rest = [line for line in last if line not in imports]
        return "\n".join(
            [
                "import jax",
                "import jax.numpy as jnp",
                "import numpy as np",
                "from jax import lax",
                "",
                *imports,
                *wide,
                "",
                self.text,
                "",
                "args = [",
                *(f"    {text}," for _, text in self.inputs),
                "]",
                *rest,
                "",
            ]
        )

    def function(self) -> Callable[..., Any]:
        """``f`` itself."""
        space: dict[str, Any] = dict(SPACE)
        exec(compile(self.text, "<program>", "exec"), space)
        return space["f"]

    def arguments(self) -> list[np.ndarray]:
        """New arrays of the inputs' values."""
        with np.errstate(all="ignore"):
            return [np.asarray(eval(text, dict(SPACE))) for _, text in self.inputs]

    def used(self) -> Program:
        """Without the statements and inputs that no output needs."""
        kept = _needed(self.statements, self.outputs)
        needed = set(self.outputs).union(*(s.uses for s in kept))
        inputs = tuple(i for i in self.inputs if i[0] in needed)
        return replace(self, statements=kept, inputs=inputs)

    @property
    def operations(self) -> list[str]:
        """What each statement is, also those inside functions."""
        return [s.op for s in walk(self.statements)]


def _needed(statements: Sequence[Statement], results: Sequence[str]) -> tuple[Statement, ...]:
    """The statements that these values need, also inside functions."""
    needed = set(results)
    kept: list[Statement] = []
    for s in reversed(statements):
        if needed.intersection(s.targets):
            functions = tuple(replace(f, statements=_needed(f.statements, names_in(f.returns))) for f in s.functions)
            kept.append(replace(s, functions=functions))
            needed |= kept[-1].uses
    return tuple(reversed(kept))


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, also those inside functions."""
    for s in statements:
        yield s
        for f in s.functions:
            yield from walk(f.statements)


def to_json(program: Program) -> dict[str, Any]:
    return {
        "inputs": [list(i) for i in program.inputs],
        "statements": [_statement_to_json(s) for s in program.statements],
        "outputs": list(program.outputs),
        "x64": program.x64,
        "types": {name: [dtype, list(shape)] for name, (dtype, shape) in program.types.items()},
    }


def from_json(data: dict[str, Any]) -> Program:
    return Program(
        tuple((name, text) for name, text in data["inputs"]),
        tuple(_statement_from_json(s) for s in data["statements"]),
        tuple(data["outputs"]),
        data["x64"],
        {name: (dtype, tuple(shape)) for name, (dtype, shape) in data.get("types", {}).items()},
    )


def _statement_to_json(s: Statement) -> dict[str, Any]:
    functions = [
        {
            "name": f.name,
            "parameters": list(f.parameters),
            "statements": [_statement_to_json(inner) for inner in f.statements],
            "returns": f.returns,
        }
        for f in s.functions
    ]
    return {"targets": list(s.targets), "text": s.text, "op": s.op, "functions": functions, "single": s.single}


def _statement_from_json(data: dict[str, Any]) -> Statement:
    functions = tuple(
        Function(
            f["name"],
            tuple(f["parameters"]),
            tuple(_statement_from_json(s) for s in f["statements"]),
            f["returns"],
        )
        for f in data["functions"]
    )
    return Statement(tuple(data["targets"]), data["text"], data["op"], functions, data["single"])
