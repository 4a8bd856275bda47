"""A pass has a name, a need and one entry point; a pipeline is a list of passes that reads like a table of contents.

Values are immutable: a pass takes one and returns one, the same object where it changes nothing. After each pass its
result is verified where ``$JAX_STITCH_VERIFY_PASSES`` is 1, and the pass with its time and both values can be recorded
(``recording``), for ``python -m jax_stitch trace --passes`` and ``JAX_STITCH_DUMP=graph:after=NAME``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar

VERIFY_VARIABLE = "JAX_STITCH_VERIFY_PASSES"
"""Set to 1, what each pass makes is verified."""

Value = TypeVar("Value")
Setting = TypeVar("Setting")


def always(setting: object) -> bool:
    """Return that a pass runs in every setting."""
    return True


class Pass(Generic[Value, Setting]):
    """A rewrite of a value, in a setting: the device, or what else it may ask."""

    def __init__(
        self, name: str, apply: Callable[[Value, Setting], Value], needs: Callable[[Setting], bool] = always
    ) -> None:
        self.name = name
        self.apply = apply
        self.needs = needs


class Step(NamedTuple):
    """A pass that has run."""

    pipeline: str
    name: str
    before: Any
    after: Any
    seconds: float


class Pipeline(Generic[Value, Setting]):
    """Passes that run one after the other. ``verify`` raises where a value is malformed."""

    def __init__(
        self, name: str, *passes: Pass[Value, Setting], verify: Callable[[Value], None] = lambda value: None
    ) -> None:
        self.name = name
        self.passes = passes
        self._verify = verify

    def __getitem__(self, name: str) -> Pass[Value, Setting]:
        """Return the pass of that name."""
        return next(p for p in self.passes if p.name == name)

    def passes_in(self, setting: Setting) -> tuple[Pass[Value, Setting], ...]:
        """Return the passes that run in a setting, in their order."""
        return tuple(p for p in self.passes if p.needs(setting))

    def run(self, value: Value, setting: Setting) -> Value:
        """Return what the passes make of a value.

        Raises:
            PassError: values are verified, and a pass made a malformed one.
        """
        records, is_verified = _records.get(), os.environ.get(VERIFY_VARIABLE) == "1"
        for each in self.passes_in(setting):
            start = time.perf_counter()
            after = each.apply(value, setting)
            step = Step(self.name, each.name, value, after, time.perf_counter() - start)
            if is_verified and after is not value:
                self._check(step)
            for record in records:
                record.append(step)
            value = after
        return value

    def _check(self, step: Step) -> None:
        if step.after == step.before:  # It would be verified, and its analyses made, once more.
            raise PassError(f"pass {step.name} of {self.name} copied a value that it does not change")
        try:
            self._verify(step.after)
        except Exception as error:
            raise PassError(f"pass {step.name} of {step.pipeline} made a malformed value: {error}") from error


class PassError(AssertionError):
    """A pass made a malformed value, or a copy of one that it does not change: a defect of JAX Stitch."""


@contextmanager
def recording() -> Iterator[list[Step]]:
    """Record each pass that runs meanwhile on this thread."""
    steps: list[Step] = []
    token = _records.set((*_records.get(), steps))
    try:
        yield steps
    finally:
        _records.reset(token)


_records: ContextVar[tuple[list[Step], ...]] = ContextVar("records", default=())
