"""Which of the two ways to launch kernels on a GPU this process uses.

The user's, where one is asked for; else the one that worked when it was tried (``jit/tune/canary.py``); where none was
tried, as in a plan for a GPU that is not here, XLA's own call for PTX.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jax_stitch.backend.launch import gpu, host, ptx
from jax_stitch.util.options.launchers import LAUNCHER_VARIABLE, Launcher, launcher_asked

TARGETS = frozenset((host.TARGET, gpu.TARGET, ptx.TARGET))
"""The targets of calls of kernels, in programs."""

_works: Launcher | None = None
_tried: ContextVar[Launcher | None] = ContextVar("jax_stitch_launcher", default=None)


def in_use() -> Launcher:
    """Raise ``WrongOption`` where the variable says what is no launcher."""
    return _tried.get() or launcher_asked() or _works or Launcher.PTX


def is_settled() -> bool:
    """Return whether there is nothing to be tried any more."""
    return launcher_asked() is not None or _works is not None


def settle(launcher: Launcher | None) -> None:
    """Settle what works in this process; with None it has to be tried again."""
    global _works
    _works = launcher


@contextmanager
def using(launcher: Launcher) -> Iterator[None]:
    """Make programs traced inside launch in this way, whatever was chosen. Raise what is wrong about a compiler."""
    token = _tried.set(launcher)
    try:
        ready()
        yield
    finally:
        _tried.reset(token)


@contextmanager
def compiling_for(attached: bool) -> Iterator[None]:
    """Compile programs traced inside for a GPU that is here, in the way in use; or for a described one, to be looked
    at: by XLA's own call, since the process that compiles these has no handler of ours.
    """
    with using(in_use() if attached else Launcher.PTX):
        yield


def ready() -> None:
    """Make programs that launch in the way in use runnable in this process, also those from the disk."""
    if in_use() is Launcher.FFI:
        gpu.register()


def inherited() -> dict[str, str]:
    """Return what child processes that make programs for this one need in their environment."""
    return {} if in_use() is Launcher.PTX else {LAUNCHER_VARIABLE: in_use().value}
