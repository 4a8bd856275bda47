"""``python -m hlo_parser check|print|stats|dot FILE``; FILE may be ``-`` for standard input."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys

from .dot import dot
from .errors import HloParseError
from .model import Module
from .read_module import read_module
from .stats import stats
from .unknown import unknown
from .verify import verify


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if all is well, 1 if the file has faults, 2 if it cannot be read."""
    options = _parser().parse_args(arguments)
    try:
        data = sys.stdin.buffer.read() if options.file == "-" else pathlib.Path(options.file).read_bytes()
        module = read_module(data.decode("utf-8", "surrogateescape"))
    except OSError as error:
        print(f"{options.file}: {error.strerror}", file=sys.stderr)
        return 2
    except HloParseError as error:
        print(f"{options.file}:{error}", file=sys.stderr)
        return 1
    try:
        return _run(options, module)
    except BrokenPipeError:  # a reader such as `head` that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace, module: Module) -> int:
    match options.command:
        case "check":
            return _check(options.file, module)
        case "print":
            sys.stdout.write(str(module))
        case "stats":
            found = stats(module)
            print(json.dumps(dataclasses.asdict(found), indent=2) if options.json else found)
        case "dot":
            name = options.computation or module.entry.name
            if all(c.name != name for c in module.computations):
                print(f"{options.file}: there is no computation {name!r}", file=sys.stderr)
                return 1
            sys.stdout.write(dot(module.computation(name)))
    return 0


def _check(file: str, module: Module) -> int:
    for part in unknown(module):
        print(f"{file}: note: {part}")
    faults = verify(module)
    for fault in faults:
        print(f"{file}: {fault}")
    print(f"{file}: {len(faults)} fault{'s' * (len(faults) != 1)}" if faults else f"{file}: well formed")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("hlo_parser", description="Reads, checks and prints XLA's HLO text.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("check", "report every fault of the module, and what of it is unknown"),
        ("print", "print the module as XLA would"),
        ("stats", "count computations, instructions, opcodes and bytes"),
        ("dot", "print a computation as a graph for Graphviz"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", help="a file with HLO text, or - for standard input")
        if name == "stats":
            command.add_argument("--json", action="store_true", help="print JSON")
        if name == "dot":
            command.add_argument("--computation", help="its name (default: the entry)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
