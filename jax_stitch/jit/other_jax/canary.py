"""A JAX that the tests have not run with: is what it makes of our functions right? Tried once, with one small program.

The verdict is kept on disk for these versions of JAX, jaxlib and this package. A failure that lies in the machine (no
compiler, a full disk) is not kept: the next process tries again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from typing import Any

from msgspec import Struct

import jax_stitch.version
from jax_stitch.util import jax_names, log, log_output, notices, store
from jax_stitch.util.forks import forked_after_use
from jax_stitch.util.jax_names import here

_logger = logging.getLogger(__name__)

_KIND = "devices"


class Verdict(Struct, frozen=True):
    """Whether functions can be stitched on this JAX."""

    refusal: str
    """Why not; empty where they can."""
    lasting: bool = True
    """Whether that holds for later processes, too."""


def is_decided() -> bool:
    """Return whether the verdict is known without running anything."""
    return here().tested or _known() is not None


def refusal() -> str:
    """Return why functions cannot be stitched on this JAX, by the verdict that is known or found out now; empty where
    they can. It can be called while JAX is tracing. It raises nothing.
    """
    global _verdict
    if here().tested:
        return ""
    with _lock:
        _verdict = _known() or _found()
        return _verdict.refusal


def report() -> dict[str, Any]:
    """Return what is known of the JAX that is here, as plain data, without running anything: the versions, whether
    they are tested, each name that is missing or changed, and the canary's verdict ("passed", or why not; None where
    there is none). Raises ``ImportError`` where there is no JAX at all.
    """
    verdict = _known()
    return {**jax_names.report(), "canary": None if verdict is None else verdict.refusal or "passed"}


def _known() -> Verdict | None:
    return _verdict or _read()


def _found() -> Verdict:
    if forked_after_use():
        return Verdict("this process was forked from one that had used JAX, and cannot compile", lasting=False)
    found = [Verdict("its trial came to no end", lasting=False)]

    def run() -> None:
        try:
            found.append(_in_all_ways())
        except Exception as error:  # Whatever a JAX that nobody has seen does, it is not the user's to see.
            found.append(Verdict(f"its trial failed: {type(error).__name__}: {error}"))

    work = notices.Work(f"a small program, once, as {here()} is not tested", "the first call waits for that", "trying")
    try:
        log_output.follow()
        notices.begin(work)
        # What JAX is tracing, and the options that are set around the call, belong to the thread of the call.
        thread = threading.Thread(target=run, name="jax_stitch canary", daemon=True)
        thread.start()
        thread.join()
    except Exception as error:  # There is no thread to be had at the end of a process.
        return Verdict(f"it cannot be tried: {error}", lasting=False)
    finally:
        notices.end(work)
    if found[-1].lasting:
        with contextlib.suppress(Exception):  # Where it cannot be kept, each process tries for itself.
            store.write(_KIND, _name(), json.dumps(found[-1].refusal).encode())
    _logger.log(
        log.level(), "%s is not tested with this JAX Stitch: %s", here(), found[-1].refusal or "its trial passed"
    )
    return found[-1]


def _in_all_ways() -> Verdict:
    from jax_stitch.jit.other_jax.ways import tried  # Only here: all of the package comes with it.

    return tried()


def _read() -> Verdict | None:
    try:
        data = store.read(_KIND, _name())
        content: Any = None if data is None else json.loads(data)
    except Exception:  # No home folder, an entry of another making.
        return None
    return Verdict(content) if isinstance(content, str) else None


def _name() -> str:
    versions = here()
    ours = jax_stitch.version.__version__
    return f"canary-{store.key(jax=versions.jax, jaxlib=versions.jaxlib, jax_stitch=ours)}.json"


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


_verdict: Verdict | None = None
_lock = threading.Lock()
os.register_at_fork(after_in_child=_after_fork)
