"""XLA's parser and compiler in a process of their own: some wrong texts make them abort.

``python -m tests.hlo_parser.judge`` reads requests from its standard input, one JSON list (what, text) a line, and
answers each with one JSON list (accepted, answer) a line.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

ABORTED = "XLA aborted the process"
FLAGS = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
"""Of the machine code nothing is looked at."""
_ROOT = pathlib.Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Verdict:
    """Whether XLA takes a text, and the module as XLA prints it, or why not."""

    accepted: bool
    answer: str

    @property
    def aborted(self) -> bool:
        return self.answer == ABORTED


def judge(what: str, texts: Iterable[str]) -> list[Verdict]:
    """What XLA makes of each text: ``parse`` it (the answer is its canonical form), or ``compile`` it for the CPU."""
    requests = "".join(json.dumps([what, text]) + "\n" for text in texts)
    command, environment = [sys.executable, "-m", __spec__.name], os.environ | {"XLA_FLAGS": FLAGS}
    done = subprocess.run(
        command, input=requests, capture_output=True, text=True, check=True, cwd=_ROOT, env=environment
    )
    return [Verdict(*json.loads(line)) for line in done.stdout.splitlines()]


def _serve() -> None:
    """Answers all requests, in a process that goes on where XLA has ended the one before: to import JAX again takes
    longer than what it is asked for."""
    import jax  # noqa: F401  (not used here: then it could not be forked)

    requests = sys.stdin.readlines()
    while requests:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            for request in requests:
                os.write(write, json.dumps(_answer(*json.loads(request))).encode() + b"\n")
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            answers = said.read().splitlines()
        _, status = os.waitpid(child, 0)
        requests = requests[len(answers) :]
        if requests:
            assert status != 0, "the child stopped without an answer"
            answers.append(json.dumps((False, ABORTED)))
            requests = requests[1:]
        print("\n".join(answers), flush=True)


def _answer(what: str, text: str) -> tuple[bool, str]:
    from tests.hlo_parser.oracle import canonical, compiled

    try:
        return True, {"parse": canonical, "compile": compiled}[what](text)
    except Exception as error:  # XLA's own, or JAX's around it
        return False, str(error)


if __name__ == "__main__":
    _serve()
