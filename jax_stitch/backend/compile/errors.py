"""What can go wrong between a kernel's text and a loaded kernel, said so that the user can act on it."""

from __future__ import annotations

import re

from jax_stitch.util.user_errors import UserError

_LOCATION = re.compile(r"(?:^|[/\s])kernel\.c[cu](?::(\d+):|\((\d+)\):)", re.MULTILINE)
_CONTEXT = 4
_LOG_LINES = 60


class CompilerMissing(UserError, RuntimeError):
    """No C++ compiler was found; the message has the command that installs one."""


class NvrtcMissing(UserError, RuntimeError):
    """NVIDIA's runtime compiler was not found, or cannot be loaded; the message has the command that installs it."""


class CompilerTrouble(UserError, RuntimeError):
    """A compiler could not do its work, for reasons that lie in this machine and not in the kernel. The message says
    what to do."""


class NoRoom(OSError):
    """There is no space left to compile in."""


class CompilerTimeout(CompilerTrouble):
    """A compiler came to no end within the time it has."""

    kernel: str | None = None
    """The kernel that it was given, if it was one."""


class KernelCompileError(RuntimeError):
    """A compiler refused a generated kernel: always a defect of JAX Stitch, not of the user's function.

    The message holds the compiler's log and the lines of the kernel around the first error.
    """

    def __init__(self, kernel: str, compiler: str, log: str, text: str) -> None:
        self.kernel, self.compiler, self.log, self.text = kernel, compiler, log, text
        lines = log.strip().splitlines()
        shown = lines[:_LOG_LINES] + (
            [f"... and {len(lines) - _LOG_LINES} more lines"] if len(lines) > _LOG_LINES else []
        )
        parts = [f"{compiler} could not compile the kernel {kernel!r}:", *shown]
        if location := _LOCATION.search(log):
            parts += [
                "",
                f"The kernel around line {location[1] or location[2]}:",
                *_excerpt(text, int(location[1] or location[2])),
            ]
        super().__init__("\n".join(parts))


def _excerpt(text: str, line: int) -> list[str]:
    """Return the numbered lines around a 1-based line, which is marked."""
    lines = text.splitlines()
    first, last = max(line - _CONTEXT, 1), min(line + _CONTEXT, len(lines))
    return [f"{'>' if n == line else ' '}{n:5} | {lines[n - 1]}" for n in range(first, last + 1)]
