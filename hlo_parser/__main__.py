"""``python -m hlo_parser check|print|stats|dot|diff|find``; a FILE may be ``-`` for standard input, and hold several
modules."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from .comparison import diff
from .counts import stats
from .errors import HloParseError
from .graphviz import dot
from .matching import Pattern, find, read_pattern
from .model import Module
from .reading.module import read_modules
from .unknown_keys import unknown
from .verifier import verify


class _Stop(Exception):
    """What to say and the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if all is well, 1 if there are faults (a text that is no HLO has one), differences or nothing is
    found, 2 if a file cannot be read or a pattern is none."""
    options = _parser().parse_args(arguments)
    try:
        status = _run(options)
        sys.stdout.flush()
        return status
    except _Stop as stop:
        print(stop, file=sys.stderr)
        return stop.status
    except BrokenPipeError:  # a reader such as `head` that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace) -> int:
    if options.command == "diff":
        return _diff(options)
    pattern = _pattern(options.pattern) if options.command == "find" else ()
    status = 0
    matches = 0
    for file in options.files:
        try:
            modules = _read(file, options.strict)
        except _Stop as stop:  # the other files may be well
            print(stop, file=sys.stderr)
            status = max(status, stop.status)
            continue
        for number, module in enumerate(modules, 1):
            where = file if len(modules) == 1 else f"{file}[{number}]"
            if options.command == "find":
                matches += _find(where, module, pattern)
            else:
                status = max(status, _one(options, where, module))
    return max(status, 1) if options.command == "find" and not matches else status


def _read(file: str, strict: bool = False) -> tuple[Module, ...]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else pathlib.Path(file).read_bytes()
        return read_modules(data.decode("utf-8", "surrogateescape"), strict=strict)
    except OSError as error:
        raise _Stop(f"{file}: {error.strerror}", 2) from None
    except HloParseError as error:
        raise _Stop(f"{file}:{error}", 1) from None


def _pattern(text: str) -> tuple[Pattern, ...]:
    try:
        return read_pattern(text)
    except HloParseError as error:
        raise _Stop(f"pattern:{error}", 2) from None


def _one(options: argparse.Namespace, where: str, module: Module) -> int:
    match options.command:
        case "check":
            return _check(where, module)
        case "print":
            sys.stdout.write(str(module))
        case "stats":
            figures = stats(module)
            print(json.dumps(dataclasses.asdict(figures), indent=2) if options.json else figures)
        case "dot":
            name = options.computation or module.entry.name
            if all(c.name != name for c in module.computations):
                raise _Stop(f"{where}: there is no computation {name!r}", 1)
            sys.stdout.write(dot(module.computation(name)))
    return 0


def _check(where: str, module: Module) -> int:
    for part in unknown(module):
        print(f"{where}: note: {part}")
    faults = verify(module)
    for fault in faults:
        print(f"{where}: {fault}")
    print(f"{where}: {len(faults)} fault{'s' * (len(faults) != 1)}" if faults else f"{where}: well formed")
    return 1 if faults else 0


def _find(where: str, module: Module, pattern: tuple[Pattern, ...]) -> int:
    matches = find(module, pattern)
    for match in matches:
        print(f"{where}: {match}")
    return len(matches)


def _diff(options: argparse.Namespace) -> int:
    left, right = (_read(file, options.strict) for file in (options.left, options.right))
    if len(left) != len(right):
        raise _Stop(f"{options.left} has {len(left)} modules, {options.right} {len(right)}", 1)
    status = 0
    for n, (a, b) in enumerate(zip(left, right, strict=True), 1):
        for difference in diff(a, b, layouts=not options.ignore_layouts):
            print(difference if len(left) == 1 else f"[{n}] {difference}")
            status = 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("hlo_parser", description="Reads, checks, compares, searches and prints HLO.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, positional: Sequence[str] = ()) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        for argument in positional:
            added.add_argument(argument)
        if name != "diff":
            added.add_argument("files", nargs="+", metavar="file", help="a file with HLO text, or - for standard input")
        added.add_argument("--strict", action="store_true", help="take only what XLA prints, not all that it reads")
        return added

    command("check", "report every fault of the modules, and what of them is unknown")
    command("print", "print the modules as XLA would")
    added = command("stats", "count computations, instructions, opcodes and bytes")
    added.add_argument("--json", action="store_true", help="print JSON")
    added = command("dot", "print a computation as a graph for Graphviz")
    added.add_argument("--computation", help="its name (default: the entry)")
    added = command("diff", "print what differs between two files, whatever the names", ("left", "right"))
    added.add_argument("--ignore-layouts", action="store_true", help="compare shapes without their layouts")
    command("find", "print the instructions that match a pattern, such as 'reduce(multiply(*, $x), *)'", ("pattern",))
    return parser


if __name__ == "__main__":
    sys.exit(main())
