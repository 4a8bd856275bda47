"""The child's side of its pipes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jax_stitch.util.child import Child, ChildDied, ChildFailed, Keeper, decode, encode

ECHO = """
import os, sys
from jax_stitch.util.child import serve

def answer(header, payload):
    if "die" in header:
        os._exit(3)
    print("noise", flush=True)
    return header, payload[::-1]

serve(answer, {idle})
"""


def start(idle: float | None) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = ECHO.format(idle=idle)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("payload", [b"", b"\x00\xff" * 70000])
def test_messages(payload: bytes) -> None:
    stream = io.BytesIO(encode({"a": [1, "ü\n"]}, payload) + encode({}))
    assert decode(stream.read) == ({"a": [1, "ü\n"]}, payload)
    assert decode(stream.read) == ({}, b"")


def test_requests_at_once_are_all_answered() -> None:
    """What is in the stream's buffer is not waited for, and what is printed does not get among the replies."""
    child = start(60.0)
    output, _ = child.communicate(encode({"a": 1}, b"abc") + encode({"b": 2}, b"de"), timeout=60)
    stream = io.BytesIO(output)
    assert decode(stream.read) == ({"a": 1}, b"cba") and decode(stream.read) == ({"b": 2}, b"ed")
    assert child.returncode == 0


def test_one_with_nothing_to_do_ends() -> None:
    child = start(0.2)
    try:
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()


def test_what_it_says_of_a_module_that_fails_at_once() -> None:
    with pytest.raises(ChildDied, match="No module named no_such_module"):
        Keeper("no_such_module", {}).ask(encode({}), 60)


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    with pytest.raises(ChildFailed, match="cannot be started"):
        Child("jax_stitch.frontend.capture.worker", {})


def test_stopping_one_that_does_not_listen() -> None:
    keeper = Keeper(
        "jax_stitch.frontend.capture.worker", {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    )
    assert keeper.ask(encode({"target_config": "", "options": []}, b""), 60)[0] == {"ok": False}
    assert keeper.child is not None
    os.kill(keeper.child.pid, 19)  # It is halted, and would get a request to end when it goes on.
    start = time.monotonic()
    keeper.interrupt(0.2)
    while keeper.child.alive and time.monotonic() < start + 30:
        time.sleep(0.01)
    assert not keeper.child.alive


def test_stopping_one_whose_own_child_holds_its_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end was not seen while that ran: who had asked it waited for the reply of a process that was gone."""
    tmp_path.joinpath("busy.py").write_text("import subprocess\nsubprocess.run(['sleep', '1000'])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    keeper = Keeper("busy", {})
    said: list[str] = []

    def ask() -> None:
        try:
            keeper.ask(encode({}), 600)
        except ChildDied as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while keeper.child is None or not Path(f"/proc/{keeper.child.pid}/task/{keeper.child.pid}/children").read_text():
        time.sleep(0.01)
    keeper.interrupt(0.2)
    asking.join(30)
    assert said and "died" in said[0]
