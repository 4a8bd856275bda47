"""A program in the making: its values with their types, and what can be had of them for an operation's arguments."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from tests.fuzz import values
from tests.fuzz.program import Function, Program, Statement, names_in
from tests.fuzz.values import SPACE

MOST_EQUATIONS = 400
"""Of an operation."""

FEW_EQUATIONS = 40
"""Of an operation that any program has room for."""

MOST_ELEMENTS = 20_000
"""Of a value that an operation makes on its way."""


@dataclass
class Shared:
    """What a whole program's scopes share."""

    rng: Random
    x64: bool
    sizes: tuple[int, ...]
    inputs: list[tuple[str, str]] = field(default_factory=list)
    avals: dict[str, jax.ShapeDtypeStruct] = field(default_factory=dict)
    """The types of all values by name."""
    room: float = math.inf
    """Equations of a program: it ends there. XLA takes as long over one of 400 as over twenty of 20."""
    primitives: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    count: int = 0
    statements: int = 0

    @property
    def left(self) -> float:
        """Equations that there is room for."""
        return self.room - sum(self.primitives.values())

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"


def dtype_name(aval: Any) -> str:
    return str(aval.dtype)


def kind_of(aval: Any) -> str:
    """Of what kind a value is: float, int, bool, complex, or key."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return "key"
    if aval.dtype == bool:
        return "bool"
    kinds = (("float", jnp.floating), ("int", jnp.integer), ("complex", jnp.complexfloating))
    return next(name for name, kind in kinds if jnp.issubdtype(aval.dtype, kind))


class Draft:
    """One scope: the program's own, or a function's inside it, which sees the names of those around it."""

    def __init__(self, shared: Shared, around: Draft | None = None, parameters: Sequence[str] = ()):
        self.shared = shared
        self.rng = shared.rng
        self.around = around
        self.letter = "v" if around is None else "w"
        self.parameters = tuple(parameters)
        self.names: list[str] = list(parameters)
        self.statements: list[Statement] = []
        self.depth: int = 0 if around is None else around.depth + 1

    # -- values

    def aval(self, name: str) -> jax.ShapeDtypeStruct:
        return self.shared.avals[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.aval(name).shape)

    def visible(self) -> list[str]:
        """Names of values, the newest last."""
        if self.around is None:
            return self.names
        outer = self.around.visible()
        return [*outer, *self.names] if self.rng.random() < 0.25 else list(self.names)

    def find(self, suits: Callable[[jax.ShapeDtypeStruct], bool] = lambda aval: True) -> str | None:
        """A value that suits, most often one of the newest."""
        found = [n for n in self.visible() if suits(self.aval(n))]
        if not found:
            return None
        return self.rng.choice(found[-3:] if self.rng.random() < 0.65 else found)

    def input(self, dtype: str, shape: Sequence[int], text: str | None = None) -> str:
        """A new input of the program."""
        name = f"x{len(self.shared.inputs)}"
        content = text or values.input_text(self.rng, dtype, shape)
        self.shared.inputs.append((name, content))
        self.shared.avals[name] = jax.ShapeDtypeStruct(tuple(shape), SPACE["jnp"].dtype(dtype))  # type: ignore[attr-defined]
        outermost = self
        while outermost.around is not None:
            outermost = outermost.around
        outermost.names.insert(0, name)
        return name

    def pick(self, kinds: Sequence[str] = (), rank: int = 0) -> str:
        """A value of one of these kinds, with at least so many dimensions; found, converted or made."""
        kinds = kinds or ("float", "int", "bool", "complex")
        found = self.find(lambda a: kind_of(a) in kinds and len(a.shape) >= rank)
        if found is not None and self.rng.random() < 0.97:
            return found
        return self.fresh(kinds, rank)

    def fresh(self, kinds: Sequence[str], rank: int = 0) -> str:
        """A new input of one of these kinds."""
        while True:
            dtype = values.draw_dtype(self.rng, self.shared.x64)
            shape = values.draw_shape(self.rng, self.shared.sizes)
            if rank and len(shape) < rank:
                continue
            if kind_of(jax.ShapeDtypeStruct((), jnp.dtype(dtype))) in kinds:
                return self.input(dtype, shape)

    def like(self, name: str, dtype: str | None = None, shape: Sequence[int] | None = None) -> str:
        """An expression of this value's type, or another dtype or shape: found, converted, or made of nothing."""
        rng = self.rng
        aval = self.aval(name)
        wanted = dtype or dtype_name(aval)
        dims = tuple(aval.shape if shape is None else shape)
        same = [n for n in self.visible() if self.shape(n) == dims and dtype_name(self.aval(n)) == wanted]
        others = [n for n in same if n != name]
        if others and rng.random() < 0.6:
            return rng.choice(others)
        of_shape = [n for n in self.visible() if self.shape(n) == dims and kind_of(self.aval(n)) not in ("key",)]
        if of_shape and rng.random() < 0.4:
            chosen = rng.choice(of_shape)
            if kind_of(self.aval(chosen)) != "complex" or wanted.startswith("complex"):
                return f"{chosen}.astype({values.dtype_text(wanted)})"
        if same and rng.random() < 0.3:
            return name if name in same else rng.choice(same)
        if rng.random() < 0.3 or len(self.shared.inputs) > 8:
            return f"jnp.full({dims}, {self.number(wanted)}, {values.dtype_text(wanted)})"
        return self.input(wanted, dims)

    def number(self, dtype: str) -> str:
        rng = self.rng
        if dtype == "bool":
            return rng.choice(("True", "False"))
        if dtype in values.INTEGERS or "int" in dtype:
            return str(rng.choice((0, 1, 2, 3, 5, 7)))
        return str(rng.choice((0.0, 1.0, -1.0, 0.5, 2.0, 3.25, 0.1, 10.0)))

    def dtype(self, kinds: Sequence[str] = ()) -> str:
        """A dtype's text."""
        while True:
            name = values.draw_dtype(self.rng, self.shared.x64)
            if not kinds or kind_of(jax.ShapeDtypeStruct((), jnp.dtype(name))) in kinds:
                return values.dtype_text(name)

    # -- statements

    def trace(self, text: str, functions: Sequence[Function] = ()) -> tuple[Any, bool] | None:
        """The jaxpr of an expression, and whether it is a single array; None where JAX refuses it."""
        source = [line for f in functions for line in f.lines]
        known = self.shared.avals
        names = [n for n in names_in("\n".join([*source, text])) if n in known and not _bound(n, functions)]
        body = "\n".join([*source, f"return {text}"])
        space: dict[str, Any] = dict(SPACE)
        exec(compile(f"def call({', '.join(names)}):\n{textwrap.indent(body, '    ')}\n", "<draft>", "exec"), space)
        single = False

        def leaves(*arrays: Any) -> list[Any]:
            nonlocal single
            result = space["call"](*arrays)
            single = isinstance(result, jax.Array)
            return jax.tree.leaves(result)

        try:
            jaxpr = jax.make_jaxpr(leaves)(*(known[n] for n in names))
        except Exception as failure:  # Whatever JAX says of arguments drawn at random: they are drawn again.
            self.shared.failures[type(failure).__name__] += 1
            return None
        return jaxpr, single

    def add(self, op: str, text: str, functions: Sequence[Function] = ()) -> bool:
        """One more statement; False where JAX refuses it, or its results are too large, or no arrays."""
        traced = self.trace(text, functions)
        if traced is None:
            return False
        jaxpr, single = traced
        avals = jaxpr.out_avals
        if not 1 <= len(avals) <= 6 or any(math.prod(a.shape) > values.LARGEST for a in avals):
            return False
        if any(math.prod(a.shape) == 0 for a in avals) and 0 not in self.shared.sizes and self.rng.random() < 0.9:
            return False
        found = Counter[str]()
        most = min(MOST_EQUATIONS, max(self.shared.left, FEW_EQUATIONS))
        if not count_equations(jaxpr.jaxpr, found) or sum(found.values()) > most:
            return False
        self.shared.primitives.update(found)
        targets = tuple(self.shared.new(self.letter) for _ in avals)
        for name, a in zip(targets, avals, strict=True):
            weak = getattr(a, "weak_type", False)
            self.shared.avals[name] = jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=weak)
        self.names += targets
        self.shared.statements += 1
        self.statements.append(Statement(targets, text, op, tuple(functions), single))
        return True

    def function(self, parameters: Sequence[Any], steps: int, grow: Callable[[Draft, int], None]) -> tuple[Draft, str]:
        """A function inside this scope with parameters of these types and some statements, and its name."""
        names = [self.shared.new("w") for _ in parameters]
        for name, a in zip(names, parameters, strict=True):
            self.shared.avals[name] = jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=False)
        inner = Draft(self.shared, self, names)
        grow(inner, steps)
        return inner, self.shared.new("g")

    def closed(self, name: str, returns: str) -> Function:
        """This scope as a function."""
        return Function(name, self.parameters, tuple(self.statements), returns)

    def fit(self, name: str, wanted: Any) -> str:
        """An expression of the type ``wanted`` that depends on a value."""
        aval = self.aval(name)
        text = name
        if tuple(aval.shape) != tuple(wanted.shape):
            if math.prod(aval.shape) == math.prod(wanted.shape):
                text = f"{name}.reshape({tuple(wanted.shape)})"
            else:
                text = f"jnp.resize({name}, {tuple(wanted.shape)})"
        if kind_of(aval) == "complex" and kind_of(wanted) != "complex":
            text = f"jnp.real({text})"
        if aval.dtype != wanted.dtype or getattr(aval, "weak_type", False):
            text = f"lax.convert_element_type({text}, {values.dtype_text(dtype_name(wanted))})"
        return text

    def program(self) -> Program:
        """All of it, with what nothing else uses, and some more, as outputs."""
        made = [n for s in self.statements for n in s.targets if kind_of(self.aval(n)) != "key"]
        used = {n for s in self.statements for n in s.uses}
        ends = [n for n in made if n not in used]
        chosen = [n for n in ends if self.rng.random() < 0.7] or ends[-1:] or made[-1:]
        chosen += [n for n in made if n not in chosen and self.rng.random() < 0.08]
        inputs = tuple(self.shared.inputs)
        types = {n: (dtype_name(a), tuple(a.shape)) for n, a in self.shared.avals.items()}
        return Program(inputs, tuple(self.statements), tuple(chosen), self.shared.x64, types).used()


def _bound(name: str, functions: Sequence[Function]) -> bool:
    """Whether a name is defined inside one of these functions."""
    for f in functions:
        if name == f.name or name in f.parameters:
            return True
        for s in f.statements:
            if name in s.targets or _bound(name, s.functions):
                return True
    return False


def count_equations(jaxpr: Any, found: Counter[str]) -> bool:
    """Counts primitives, also inside; False where a value on the way is too large."""
    for equation in jaxpr.eqns:
        found[equation.primitive.name] += 1
        if any(math.prod(v.aval.shape) > MOST_ELEMENTS for v in equation.outvars if hasattr(v.aval, "shape")):
            return False
        for inner in jaxprs_in_params(equation.params):
            if not count_equations(inner, found):
                return False
    return True


def as_array(x: Any) -> np.ndarray:
    """An array's values; of PRNG keys, the words they consist of."""
    keys = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if keys else x)
