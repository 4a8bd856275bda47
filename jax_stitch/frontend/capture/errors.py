"""What can go wrong before there is a plan."""

from __future__ import annotations

import re

from jax_stitch.util.user_errors import UserError

_UNKNOWN_CALL = re.compile(r"No (?:FFI handler registered for|registered implementation for.*? custom call to) (\S+)")


class Unstitchable(Exception):
    """The function has to be left to ``jax.jit``; the message says why, as the end of a sentence."""


class UnstitchableError(UserError, RuntimeError):
    """A function under ``strict=True`` cannot be stitched. The message names it, and the instruction that stands
    against it where it is one.
    """

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"{function} cannot be stitched: {reason}")
        self.function, self.reason = function, reason


class CaptureError(RuntimeError):
    """XLA did not give the optimized HLO of a program."""


class CudaPluginMissing(UserError, CaptureError):
    """XLA's GPU compiler is not installed in this environment."""

    def __init__(self) -> None:
        super().__init__(
            "planning for a GPU needs JAX's CUDA plugin, which holds XLA's GPU compiler (no GPU and no driver are "
            'needed): pip install "jax-stitch[plan]", or in a clone pip install ".[plan]"'
        )


class HloFileError(UserError, ValueError):
    """A file or text of HLO that cannot be read, planned or run. The message says where, what, and what to do, in at
    most three lines."""


def unknown_call(message: str) -> str | None:
    """Return the function whose call kept XLA from compiling, as its error says: one that nobody has registered."""
    found = _UNKNOWN_CALL.search(message)
    return None if found is None else found[1]
