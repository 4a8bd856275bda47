"""From a program that fails to a few lines that fail alike."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from tests.fuzz import child, values
from tests.fuzz.child import Outcome
from tests.fuzz.program import Function, Program, Statement, names_in

INLINE = re.compile(r"^jax\.(?:jit|checkpoint)\((g\d+)\)\(([^()]*)\)$")


def reduce(failed: Outcome, seconds: float) -> tuple[Program, Outcome]:
    """The smallest program found in this time that fails like ``failed``, and what it says."""
    assert isinstance(failed.program, Program)
    best, last = failed.program, failed
    limit = min(failed.task.limit, max(10.0, 2 * failed.seconds + 5))
    if failed.kind == "hang":
        limit = min(failed.task.limit, 25.0)
    end = time.monotonic() + seconds
    progress = True
    tried: set[str] = set()
    while progress and time.monotonic() < end:
        progress = False
        for candidate in candidates(best):
            if time.monotonic() > end:
                break
            smaller = candidate.used()
            key = repr((smaller.text, smaller.inputs))
            if key in tried or size(smaller) >= size(best):
                continue
            tried.add(key)
            outcome = child.run(child.again(failed, smaller, limit))
            if child.same(outcome, failed):
                best, last, progress = smaller, outcome, True
                break
    return best, last


def size(p: Program) -> tuple[int, int, int]:
    """What counts: statements, then functions around them, then the length of it all."""
    statements = list(_all(p.statements))
    return (len(statements), sum(len(s.functions) for s in statements), len(p.text) + sum(len(t) for _, t in p.inputs))


def _all(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    for s in statements:
        yield s
        for f in s.functions:
            yield from _all(f.statements)


def candidates(p: Program) -> Iterator[Program]:
    """Smaller programs, the boldest first."""
    if len(p.outputs) > 1:
        for name in p.outputs:
            yield replace(p, outputs=(name,))
    count = len(p.statements)
    step = count
    while step >= 1:
        for first in range(0, count, step):
            yield without(p, set(range(first, min(first + step, count))))
        step //= 2
    for k in range(count):
        yield replace(p, outputs=p.statements[k].targets).used()
    for k, s in enumerate(p.statements):
        yield from inlined(p, k)
        for n, function in enumerate(s.functions):
            yield hoisted(p, k, function)
            for m in range(len(function.statements)):
                yield _inner_without(p, k, n, m)
    yield from simpler_inputs(p)
    yield from smaller_numbers(p)


def fresh(p: Program, names: list[str]) -> tuple[tuple[str, str], ...]:
    """Inputs that stand in for values."""
    found = []
    for name in names:
        if name in p.types and not p.types[name][0].startswith("key"):
            dtype, shape = p.types[name]
            found.append((name, values.input_text(Random(3), dtype, shape)))
    return tuple(found)


def without(p: Program, dropped: set[int]) -> Program:
    """Statements replaced by inputs."""
    names = [t for k in sorted(dropped) for t in p.statements[k].targets]
    kept = tuple(s for k, s in enumerate(p.statements) if k not in dropped)
    outputs = tuple(o for o in p.outputs if o not in names)
    if not outputs:
        outputs = tuple(t for s in kept[-1:] for t in s.targets)
    used = {n for s in kept for n in s.uses}
    return replace(p, statements=kept, inputs=p.inputs + fresh(p, [n for n in names if n in used]), outputs=outputs)


def inlined(p: Program, k: int) -> Iterator[Program]:
    """A statement that calls one function, as the function's statements."""
    s = p.statements[k]
    match = INLINE.match(s.text)
    if match is None or len(s.functions) != 1:
        return
    function = s.functions[0]
    operands = [a.strip() for a in match.group(2).split(",") if a.strip()]
    names = names_in(function.returns)
    if len(names) != len(s.targets) or len(operands) != len(function.parameters):
        return
    start = tuple(Statement((w,), a, "=") for w, a in zip(function.parameters, operands, strict=True))
    ends = tuple(Statement((t,), n, "=") for t, n in zip(s.targets, names, strict=True))
    middle = (*start, *function.statements, *ends)
    yield replace(p, statements=(*p.statements[:k], *middle, *p.statements[k + 1 :]))


def hoisted(p: Program, k: int, function: Function) -> Program:
    """What is inside a function of a statement, by itself, of new inputs."""
    outputs = tuple(n for n in names_in(function.returns) if n not in function.parameters) or function.parameters[:1]
    statements = (*p.statements[:k], *function.statements)
    return replace(p, statements=statements, inputs=p.inputs + fresh(p, list(function.parameters)), outputs=outputs)


def _inner_without(p: Program, k: int, n: int, m: int) -> Program:
    """A statement of a function replaced by inputs of the whole program."""
    s = p.statements[k]
    function = s.functions[n]
    names = list(function.statements[m].targets)
    kept = function.statements[:m] + function.statements[m + 1 :]
    changed = replace(function, statements=kept)
    statement = replace(s, functions=(*s.functions[:n], changed, *s.functions[n + 1 :]))
    statements = (*p.statements[:k], statement, *p.statements[k + 1 :])
    return replace(p, statements=statements, inputs=p.inputs + fresh(p, names))


def simpler_inputs(p: Program) -> Iterator[Program]:
    for k, (name, text) in enumerate(p.inputs):
        if name not in p.types:
            continue
        dtype, shape = p.types[name]
        if dtype == "bool":
            simple = [f"np.ones({shape}, bool)"]
        else:
            count = 1
            for n in shape:
                count *= n
            cast = values.dtype_text(dtype)
            simple = [f"np.ones({shape}, {cast})", f"np.arange({count}).reshape({shape}).astype({cast})"]
            simple.append(f"np.random.default_rng(0).integers(0, 9, {shape}).astype({cast})")
        for new in simple:
            if len(new) < len(text):
                yield replace(p, inputs=(*p.inputs[:k], (name, new), *p.inputs[k + 1 :]))


_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def smaller_numbers(p: Program) -> Iterator[Program]:
    """A size replaced by a smaller one wherever it stands."""
    text = p.text + " ".join(t for _, t in p.inputs)
    numbers = sorted({int(n) for n in _NUMBER.findall(text)}, reverse=True)
    for n in numbers[:6]:
        for new in (2, 3, 5, 9, 33):
            if new >= n or len(str(new)) >= len(str(n)):
                continue
            pattern = re.compile(rf"(?<![\w.]){n}(?![\w.])")
            yield _with_text(p, lambda t, q=pattern, v=new: q.sub(str(v), t))


def _with_text(p: Program, change: object) -> Program:
    assert callable(change)

    def of(s: Statement) -> Statement:
        functions = tuple(
            replace(f, statements=tuple(map(of, f.statements)), returns=change(f.returns)) for f in s.functions
        )
        return replace(s, text=change(s.text), functions=functions)

    inputs = tuple((name, change(text)) for name, text in p.inputs)
    return replace(p, statements=tuple(map(of, p.statements)), inputs=inputs, types={})
