"""Benchmarks that compile side by side and measure alone."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ONE = """
import sys, time
from bench.alone import alone, beside
log = open(sys.argv[1], "a")
def say(what):
    log.write(f"{sys.argv[2]} {what}\\n"); log.flush()
for _ in range(3):
    with beside():
        say("prepares"); time.sleep(0.05 * (1 + int(sys.argv[2]))); say("prepared")
        with alone():
            say("measures"); time.sleep(0.05); say("measured")
"""


def test_nobody_prepares_or_measures_while_one_measures(tmp_path: Path) -> None:
    """Times taken while another process compiles, or two at a time; or preparations that wait for each other."""
    log = tmp_path / "log"
    start = time.monotonic()
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", ONE, str(log)]
    processes = [subprocess.Popen([*command, str(k)], env=environment) for k in range(3)]
    assert [p.wait(60) for p in processes] == [0, 0, 0]
    assert time.monotonic() - start < 30
    preparing, measuring, most = set[str](), set[str](), 0
    for line in log.read_text().splitlines():
        who, what = line.split()
        match what:
            case "prepares":
                assert not measuring
                preparing.add(who)
            case "prepared":
                preparing.discard(who)
            case "measures":
                assert not preparing and not measuring
                measuring.add(who)
            case "measured":
                measuring.discard(who)
        most = max(most, len(preparing))
    assert most > 1
