"""Processes with a JAX that lacks a name, has it in another form, or has another version; what a user sees there.

``python -m tests.other_jax.faulty_jax`` imports JAX once, reads a case from each line, and forks a process that runs a
small program under that case. It writes what came of it as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

MISSING, OTHER, ONE_MORE = "missing", "other", "one more"


def plant(name: str, fault: str) -> None:
    """Have the package find this name of its table missing or changed, wherever it looks."""
    from jax_stitch.util.jax_names import found

    found.module = changed_module(name, fault, found.module)


def changed_module(name: str, fault: str, real: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return ``real``, which looks up JAX's modules, but for a name that is missing or changed."""
    from jax_stitch.util.jax_names.table import NAMES

    (entry,) = (one for one in NAMES if one.name == name)

    def module(home: str) -> Any:
        if home != entry.home:
            return real(home)
        if not entry.attribute:
            if fault == MISSING:
                raise ImportError(f"no module {home}")
            return object()
        changed = types.ModuleType(home)
        changed.__dict__.update({key: getattr(real(home), key) for key in dir(real(home))})
        if fault == MISSING:
            delattr(changed, entry.attribute)
        else:
            value = getattr(real(home), entry.attribute)
            setattr(changed, entry.attribute, OneMore(value) if fault == ONE_MORE else other_form(value))
        return changed

    return module


def other_form(value: Any) -> Any:
    """Return something else in the place of a value: a function of other arguments, or an object with nothing."""

    def other(unheard_of: Any, /, *, needed: Any) -> Any:
        raise AssertionError("called")

    if value is jax.jit:
        return lambda fun, **options: lambda *args, **kwargs: value(fun, **options)(*args, **kwargs)
    return other if callable(value) and not isinstance(value, type) else types.SimpleNamespace()


class OneMore(dict[Any, Any]):
    """A registry whose rules JAX calls with one argument more."""

    def __init__(self, registry: dict[Any, Any]) -> None:
        super().__init__(registry)
        self._registry = registry

    def __setitem__(self, operation: Any, rule: Callable[..., Any]) -> None:
        self._registry[operation] = lambda *args, **kwargs: rule(*args, object(), **kwargs)


def run(case: Mapping[str, Any], expected: list[Any]) -> dict[str, Any]:
    """Run the small program, with these results, under a case."""
    os.environ.update(case.get("env", {}))
    if "version" in case:
        jax.__version__ = jaxlib.__version__ = case["version"]
    tries: list[None] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            count_tries(tries, case.get("ways"))
            if "name" in case:
                plant(case["name"], case["fault"])
            seen = user_program(expected, bool(case.get("strict")), "ways" in case)
        except Exception as error:
            seen = {"raised": f"{type(error).__name__}: {error}"}
    ours = [str(w.message) for w in caught if w.category.__name__ == "StitchWarning"]
    return {**seen, "warnings": ours, "tries": len(tries)}


def count_tries(tries: list[None], only: Sequence[str] | None) -> None:
    """Have each run of the canary noted; with ``only``, have it try these ways alone."""
    from jax_stitch.jit.other_jax import canary

    real = canary._in_all_ways

    def counted() -> canary.Verdict:
        from jax_stitch.jit.other_jax import ways

        tries.append(None)
        ways.WAYS = tuple(way for way in ways.WAYS if only is None or way[0] in only)
        return real()

    canary._in_all_ways = counted


def fun(x: Any, scale: Any) -> Any:
    """Normalise the rows of an array."""
    return jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True) * scale


def in_all_ways(f: Callable[..., Any], g: Callable[..., Any]) -> list[Any]:
    """Return, as lists, the results of two functions inside others, and then called."""

    def all_ways(x: Any, scale: Any) -> Any:
        derivative = jax.grad(lambda x: (f(x, scale) ** 2).sum())(x)
        in_order = jax.lax.scan(lambda carry, _: (f(carry, scale), None), x, None, length=2)[0]
        return jax.vmap(f, (0, None))(x[:, None], scale), derivative, in_order, g(x, scale)

    x, scale = arguments()
    return [np.asarray(leaf).tolist() for leaf in (*jax.jit(all_ways)(x, scale), *(f(x, scale) for _ in range(3)))]


def arguments() -> tuple[Any, Any]:
    """Return arguments of ``fun``."""
    return jnp.linspace(-1, 1, 512).reshape(4, 128), jnp.ones(128)


def user_program(expected: list[Any], strict: bool, brief: bool) -> dict[str, Any]:
    """Use a stitched function in the usual ways, first inside others. Say whether its results are the expected ones.

    A ``brief`` one is called, no more.
    """
    from jax_stitch import HloFileError, StitchedFunction, compare, stitch, stitch_hlo, stitch_jit  # noqa: F401

    function: Any = stitch_jit(fun, mode="now", strict=strict)
    found = [np.asarray(function(*arguments()))] if brief else in_all_ways(function, stitch(fun))
    pairs = zip(found, expected[-len(found) :], strict=True)
    right = all(np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs)
    try:
        plan = "" if brief else str(function.plan(*arguments()))
    except Exception as error:
        plan = f"{type(error).__name__}: {error}"
    return {"right": right, "plan": plan, "status": str(function.status()), "settled": function.wait()}


def apart(work: Callable[[], Any]) -> Any:
    """Return what a forked process computes, as JSON has it. This one does not use JAX, so that it can be forked."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "w") as answer:
            answer.write(json.dumps(work()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text or '{"raised": "the process died"}')


def main() -> None:
    """Answer one case after the other."""
    expected = apart(lambda: in_all_ways(jax.jit(fun), fun))
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(apart(lambda case=case: run(case, expected))), flush=True)


if __name__ == "__main__":
    main()
