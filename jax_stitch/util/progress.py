"""Saying what long work is at: a command on stderr, and whoever wants to know how many kernels are compiled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Step = Callable[[str], None]
"""Told the next thing to be done, in a few words, when it starts."""


def silent(step: str) -> None:
    """Return a ``Step`` that says nothing."""


_told: ContextVar[Step] = ContextVar("jax_stitch_told", default=silent)


def tell(step: str) -> None:
    """Say what is being done to whoever has asked with ``told``, from deep inside a call."""
    _told.get()(step)


@contextmanager
def told(step: Step) -> Iterator[None]:
    """Let ``step`` hear what this thread's calls ``tell``."""
    token = _told.set(step)
    try:
        yield
    finally:
        _told.reset(token)


Count = Callable[[int, int], None]
"""Told how many kernels of how many are compiled."""

_counted: ContextVar[Count | None] = ContextVar("jax_stitch_counted", default=None)


def tell_count(done: int, total: int) -> None:
    """Say how many kernels are compiled to whoever has asked with ``counted``, from deep inside a call."""
    count = _counted.get()
    if count is not None:
        count(done, total)


@contextmanager
def counted(count: Count) -> Iterator[None]:
    """Let ``count`` hear what this thread's calls compile."""
    token = _counted.set(count)
    try:
        yield
    finally:
        _counted.reset(token)


EVERY = 10.0
"""Seconds between two lines about the same step, where the output is no terminal."""


@contextmanager
def _lines(show: Step) -> Iterator[Step]:
    """Yield a ``Step`` that shows each step, and from time to time that it still lasts."""
    changed = threading.Condition()
    current: list[tuple[str, float]] = []
    ended = threading.Event()

    def step(message: str) -> None:
        with changed:
            current[:] = [(message, time.monotonic())]
            show(message)
            changed.notify()

    def repeat() -> None:
        with changed:
            while not ended.is_set():
                if not changed.wait(EVERY) and current:
                    message, began = current[0]
                    show(f"{message} ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=repeat, name="jax-stitch-progress", daemon=True)
    thread.start()
    try:
        yield step
    finally:
        with changed:
            ended.set()
            changed.notify()
        thread.join()


@contextmanager
def shown_steps(console: Console | None = None) -> Iterator[Step]:
    """Yield a ``Step`` that shows each step with a spinner and its time.

    On what is no terminal, one line for each step as it starts, and one every ten seconds while it lasts.
    """
    from rich.console import Console  # for commands only
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = console or Console(stderr=True)
    if not console.is_terminal:
        with _lines(
            lambda message: console.print(f"... {message}", highlight=False, markup=False, soft_wrap=True)
        ) as told_in_lines:
            yield told_in_lines
        return
    columns = (SpinnerColumn(finished_text="[green]✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        def finish() -> None:
            for task in progress.task_ids:
                progress.update(task, total=1, completed=1)

        def step(message: str) -> None:
            finish()
            progress.add_task(message, total=None)

        yield step
        finish()
