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
from collections.abc import Iterable, Iterator
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
    return list(_verdicts(what, list(texts)))


def _verdicts(what: str, texts: list[str]) -> Iterator[Verdict]:
    environment = os.environ | {"XLA_FLAGS": FLAGS}
    while texts:
        requests = "".join(json.dumps([what, text]) + "\n" for text in texts)
        command = [sys.executable, "-m", __spec__.name]
        done = subprocess.run(
            command, input=requests, capture_output=True, text=True, check=False, cwd=_ROOT, env=environment
        )
        answers = [Verdict(*json.loads(line)) for line in done.stdout.splitlines()]
        yield from answers
        texts = texts[len(answers) :]
        if texts:
            assert done.returncode != 0, "the child stopped without an answer"
            yield Verdict(False, ABORTED)
            texts = texts[1:]


def _serve() -> None:
    from tests.hlo_parser.oracle import canonical, compiled

    work = {"parse": canonical, "compile": compiled}
    for line in sys.stdin:
        what, text = json.loads(line)
        try:
            answer = (True, work[what](text))
        except Exception as error:  # XLA's own, or JAX's around it
            answer = (False, str(error))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
