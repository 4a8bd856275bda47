"""The subject of a command: a function with its arguments, or a program in a file of HLO."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_stitch.inspect.cli import arguments
from jax_stitch.inspect.cli.command_parser import one_of
from jax_stitch.jit.other_jax import compare, stitch_jit
from jax_stitch.util.suggestion import UsageError

if TYPE_CHECKING:
    from jax_stitch.hlo import HloFunction
    from jax_stitch.inspect.report.compare import Comparison
    from jax_stitch.inspect.report.plan import Plan

_OPTIMIZE = {"auto": None, "yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Subject:
    """Something to plan and to compare."""

    name: str
    function: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    """The arguments, or their types."""
    program: HloFunction | None = None
    """Where it is one."""

    def plan(self, device: str | None, **asked: Any) -> Plan:
        """Return its plan for a device."""
        if self.program is not None:
            return self.program.plan(device, **asked)
        stitched: Any = self.function if hasattr(self.function, "plan") else stitch_jit(self.function)
        return stitched.plan(*self.args(), device=device, **asked)

    def compare(self, **asked: Any) -> Comparison:
        """Run it plain and stitched, on the arguments or on made up ones."""
        types: AbstractContextManager[Any] = nullcontext()
        if self.program is not None:
            self.program.program.require_runnable()
            types = self.program.program.types()
        with types:
            args = arguments.values(self.args())
            if self.program is not None:
                try:
                    self.program.program.check(args)
                except TypeError as error:
                    raise UsageError(f"{error}; mend what --make-args returns") from None
            return compare(self.function, *args, **asked)


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the subject of a command."""
    parser.add_argument(
        "function", nargs="?", metavar="package.module:function", help="a plain function, or one under stitch_jit"
    )
    parser.add_argument(
        "--args",
        nargs="+",
        default=[],
        metavar="ARG",
        help="f32[8192,1024] or float32[8192,1024] and such, a number, or key (a PRNG key)",
    )
    parser.add_argument("--strict", action="store_true", default=None, help="fail where it would run as plain jax.jit")
    parser.add_argument("--make-args", metavar="module:callable", help="called for the tuple of all arguments instead")
    parser.add_argument(
        "--hlo", metavar="FILE", help="in place of a function: HLO text, an HLO proto, StableHLO text or bytecode"
    )
    parser.add_argument("--module", metavar="NAME", help="of several in that file this one, by name or number")
    parser.add_argument(
        "--optimize",
        type=one_of(*_OPTIMIZE),
        metavar="auto|yes|no",
        default="auto",
        help="whether XLA's passes run on the file's program first; default: if they have not run yet",
    )


def subject(options: argparse.Namespace) -> Subject:
    """Return the subject that the options name. Raises ``UsageError`` and ``HloFileError``."""
    if (options.function is None) == (options.hlo is None):
        raise UsageError("name what it is about: either package.module:function, or --hlo FILE")
    if options.hlo is None:
        if options.module is not None or options.optimize != "auto":
            raise UsageError("--module and --optimize are for files: name one with --hlo FILE")
        function = arguments.load(options.function)
        args = arguments.make(options.args, options.make_args)
        arguments.check_call(function, args, options.function)
        return Subject(options.function, function, lambda: args)
    if options.args:
        raise UsageError("--args is for functions: a file says what its program takes; leave it out")
    # Not before it is asked for: they need more of JAX than other commands do.
    from jax_stitch.frontend.hlo_files import read
    from jax_stitch.hlo import HloFunction

    program = HloFunction(read(Path(options.hlo), options.module, _OPTIMIZE[options.optimize]))

    def made() -> tuple[Any, ...]:
        return program.parameters if options.make_args is None else arguments.make((), options.make_args)

    return Subject(options.hlo, program.function, made, program)
