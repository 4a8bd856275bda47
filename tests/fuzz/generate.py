"""Grows programs: operations drawn by their signatures, or by recipes where these say too little."""

from __future__ import annotations

import inspect
import math
import warnings
from functools import cache
from random import Random
from typing import Any

import jax

from tests.fuzz import recipes
from tests.fuzz.arguments import argument
from tests.fuzz.draft import Draft, Shared, kind_of
from tests.fuzz.guesses import matrix
from tests.fuzz.program import Program
from tests.fuzz.surface import surface
from tests.fuzz.values import draw_dimensions, draw_dtype, draw_shape

WEIGHTS = {
    "lax": 30.0,
    "lax.linalg": 0.6,
    "jnp": 36.0,
    "jnp.linalg": 1.5,
    "jnp.fft": 0.8,
    "jax.nn": 5.0,
    "jax.random": 6.0,
    "jax.image": 0.4,
    "jax.scipy.special": 3.0,
    "jax.scipy.linalg": 0.8,
    "jax.scipy.signal": 0.8,
    "jax.scipy.ndimage": 0.3,
    "jax.scipy.fft": 0.4,
    "jax.scipy.stats": 2.0,
    "jax.ops": 0.8,
    "composed": 15.0,
    "favourite": 18.0,
}
"""How often an operation is of each module; ``composed`` are functions of functions."""

FAVOURITES = [
    "lax.sort",
    "jnp.sort",
    "jnp.argsort",
    "jnp.cumsum",
    "lax.cumsum",
    "lax.cummax",
    "lax.reduce_max",
    "jnp.sum",
    "jnp.max",
    "jnp.mean",
    "jnp.argmax",
    *3 * ("lax.gather",),
    "lax.scatter_add",
    *3 * ("jnp.take",),  # Its indices are often of places.
    "jnp.take_along_axis",
    "lax.dynamic_slice",
    "lax.dynamic_update_slice",
    "lax.pad",
    "lax.concatenate",
    "lax.reduce_window",
    "lax.transpose",
    "lax.rev",
    "lax.reshape",
    "lax.slice",
    "lax.select",
    *4 * ("jnp.where",),  # Its masks are often of places.
    "lax.dot_general",
    "jax.nn.softmax",
    "jnp.concatenate",
    "jnp.roll",
    "lax.broadcast_in_dim",
    *3 * ("lax.reduce",),  # From whatever value.
    "lax.add",
    "lax.mul",
    "lax.sub",
    "jnp.exp",
    "jnp.tanh",
    "lax.convert_element_type",
    "lax.associative_scan",
    "lax.scan",
    "jnp.median",
    "jnp.var",
    "jnp.linalg.norm",
    "jnp.searchsorted",
    "jnp.interp",
    "lax.top_k",
]
"""What makes kernels of several parts, drawn more often: the faults are where such meet."""

KINDS: tuple[tuple[str, ...], ...] = ((), ("float",), ("int",), ("float",), ("float", "int"), ("bool",), ("complex",))
"""Of the value that a call is about, from one attempt to the next."""

ATTEMPTS = 7

MOST = 40
"""Statements of a program, those inside functions counted."""

ROOM = (30, 60, 60, 120, 240, math.inf)
"""Equations of programs."""


@cache
def _by_module() -> dict[str, list[str]]:
    modules: dict[str, list[str]] = {name: [] for name in WEIGHTS}
    for name in surface():
        found = [m for m in modules if name.startswith(m + ".")]
        modules[max(found, key=len)].append(name)
    modules["composed"] = [*recipes.COMPOSED, *3 * ("row writes",)]  # What such loops become depends on many things.
    modules["favourite"] = [n for n in FAVOURITES if n in surface()]
    return modules


def is_wide(seed: int, number: int, x64: bool | None = None) -> bool:
    """Whether a program is one of 64-bit types: a process has to know before it traces anything."""
    return Random(f"{seed}:{number} x64").random() < 0.25 if x64 is None else x64


def program(seed: int, number: int, *, x64: bool | None = None, without: frozenset[str] = frozenset()) -> Program:
    """The program of this number, the same at each call."""
    rng = Random(f"{seed}:{number}")
    wide = is_wide(seed, number, x64)
    steps = min(MOST, round(rng.expovariate(1 / 8)) + 3)
    draft = Draft(Shared(rng, wide, draw_dimensions(rng), room=rng.choice(ROOM)))
    with warnings.catch_warnings(), jax.enable_x64(wide):
        warnings.simplefilter("ignore")
        for _ in range(rng.choice((1, 2, 2, 3))):
            draft.input(draw_dtype(rng, wide), draw_shape(rng, draft.shared.sizes))
        grow(draft, steps, without)
    return draft.program()


def each(seed: int, number: int) -> Program:
    """A short program about one operation: all of them in turn, so that none is left to chance."""
    rng = Random(f"{seed}:{number} each")
    names = [*surface(), *recipes.COMPOSED]
    name = names[number % len(names)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            draft = Draft(Shared(rng, False, draw_dimensions(rng)))
            for _ in range(2):
                draft.input(draw_dtype(rng, False), draw_shape(rng, draft.shared.sizes))
            if attempt(draft, name, 10):
                attempt(draft, rng.choice(FAVOURITES))
                break
    return draft.program()


def grow(draft: Draft, steps: int, without: frozenset[str] = frozenset()) -> None:
    """Adds so many statements."""
    failures = 0
    while len(draft.statements) < steps and failures < 25 and draft.shared.statements < MOST and draft.shared.left > 0:
        name = draw(draft)
        if name.rpartition(".")[2] in without or name in without:
            continue
        failures += not attempt(draft, name)


def draw(draft: Draft) -> str:
    rng = draft.rng
    modules = _by_module()
    weights = dict(WEIGHTS)
    if draft.depth:
        weights["composed"] *= 0.3 if draft.depth == 1 else 0.0
    module = rng.choices(list(weights), list(weights.values()))[0]
    return rng.choice(modules[module])


def attempt(draft: Draft, name: str, attempts: int = ATTEMPTS) -> bool:
    """Tries some calls of an operation until JAX takes one."""
    if name in recipes.COMPOSED:
        return any(recipes.COMPOSED[name](draft, grow) for _ in range(2))
    recipe = recipes.RECIPES.get(name)
    for k in range(attempts):
        main = draft.pick(KINDS[k % len(KINDS)], rank=0 if k < 5 else draft.rng.choice((1, 2)))
        made: Any
        if recipe is not None:
            made = recipe(draft, main)
        else:
            made = by_signature(draft, name, main)
        if made is None:
            continue
        text, functions = made if isinstance(made, tuple) else (made, ())
        if draft.add(name, text, functions):
            return True
    return False


@cache
def _signature(name: str) -> inspect.Signature | None:
    try:
        return inspect.signature(surface()[name])
    except (ValueError, TypeError):
        return None


def by_signature(draft: Draft, name: str, main: str) -> str | None:
    """A call with an argument for each required parameter, and some of the others."""
    function: Any = surface()[name]
    rng = draft.rng
    if name.endswith((".reduce", ".accumulate", ".outer", ".reduceat", ".at")):
        return recipes.ufunc_method(draft, name, main)
    if hasattr(function, "nin"):
        more = [recipes.similar(draft, main) for _ in range(function.nin - 1)]
        return f"{name}({', '.join([main, *more])})"
    signature = _signature(name)
    if signature is None:
        return None
    arguments: list[str] = []
    placed = False
    named = False
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.VAR_POSITIONAL:
            arguments += [main, *(recipes.similar(draft, main) for _ in range(rng.randint(0, 2)))]
            placed = True
            continue
        required = p.default is p.empty
        if required and not placed and p.name in _MAIN_NAMES:
            placed = True
            value: str | None = main
            if "linalg" in name and rng.random() < 0.85:
                value = matrix(draft, main)
        else:
            value = argument(draft, name, p, main)
        if value is None:
            if required:
                return None
            named = True
        elif p.kind is p.KEYWORD_ONLY or named:
            if p.kind is p.POSITIONAL_ONLY:
                continue
            arguments.append(f"{p.name}={value}")
        else:
            arguments.append(value)
    return f"{name}({', '.join(arguments)})"


_MAIN_NAMES = frozenset(
    [
        "x",
        "a",
        "arr",
        "array",
        "operand",
        "ary",
        "m",
        "y",
        "x1",
        "v",
        "image",
        "input",
        "data_",
        "in1",
        "a1",
        "ar1",
        "ar",
        "z",
        "element",
        "p",
        "n",
        "values",
        "sample",
        "lhs",
        "val",
        "src",
        "condition",
        "logits",
        "bits",
        "object",
        "filt",
        "matrix",
        "h",
        "k",
        "w",
        "r",
        "c",
        "A",
        "q",
        "prototype",
        "data",
        "t",
        "mu",
        "shape_",
    ]
)
"""Names of the parameter that the value a call is about goes to."""


def describe(draft: Draft) -> str:
    """How large a draft's values are, for those who read logs."""
    sizes = [math.prod(draft.shape(n)) for n in draft.names]
    kinds = [kind_of(draft.aval(n)) for n in draft.names]
    return f"{len(sizes)} values of at most {max(sizes, default=0)} elements: {', '.join(sorted(set(kinds)))}"
