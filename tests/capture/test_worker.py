"""The compiler process: framing, and what happens when it dies, hangs, or its owner forks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import CaptureError, client, cuda_plugin_installed, lower
from jax_stitch.util.child import Child, decode, encode

H200 = devices.get("h200")
needs_plugin = pytest.mark.skipif(not cuda_plugin_installed(), reason="the CUDA plugin is not installed")


def compile_for(bytecode: bytes, device: Any, options: dict[str, Any] | None = None) -> str:
    """As ``capture.compile_for``, by the process itself: not what is kept on disk."""
    return client.compile_described(bytecode, device.target_config, options or {})


def program(size: int = 8) -> bytes:
    return lower(lambda a: a + 1, (jax.ShapeDtypeStruct((size,), np.float32),), H200).bytecode()


def worker() -> Child:
    compile_for(program(), H200)
    assert client.COMPILER.child is not None
    return client.COMPILER.child


@needs_plugin
def test_one_process_serves_many_programs() -> None:
    first = worker()
    assert worker() is first and first.alive


@needs_plugin
def test_a_program_larger_than_a_pipe() -> None:
    table = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    large = lower(lambda a: a + table, (jax.ShapeDtypeStruct(table.shape, np.float32),), H200)
    assert len(large.bytecode()) > 500_000 and len(compile_for(large.bytecode(), H200)) > 1_000_000


@needs_plugin
def test_xlas_error_leaves_the_process_alive() -> None:
    process = worker()
    with pytest.raises(CaptureError, match="no_such_option"):
        compile_for(program(), H200, {"xla_no_such_option": True})
    with pytest.raises(CaptureError, match="MLIR"):
        compile_for(b"not bytecode", H200)
    assert worker() is process


@needs_plugin
def test_an_abort_inside_xla_shows_its_reason_and_the_next_call_works() -> None:
    process = worker()
    long_rows = lower(jax.nn.softmax, (jax.ShapeDtypeStruct((64, 262144), np.float32),), H200).bytecode()
    with pytest.raises(CaptureError, match=r"died.*\n.*Check failed"):
        compile_for(long_rows, H200, {"xla_disable_hlo_passes": "tree-reduction-rewriter"})
    assert not process.alive and worker() is not process


@needs_plugin
def test_a_killed_process_is_replaced() -> None:
    process = worker()
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while process.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker() is not process


@needs_plugin
def test_a_process_that_does_not_answer_is_stopped() -> None:
    process = worker()
    os.kill(process.pid, signal.SIGSTOP)
    assert H200.target_config is not None
    with pytest.raises(CaptureError, match=r"stopped after 0\.2 s"):
        client.compile_described(program(), H200.target_config, {}, timeout=0.2)
    assert not process.alive and worker() is not process


@needs_plugin
def test_threads_take_turns() -> None:
    texts: dict[int, str] = {}
    programs = {size: program(size) for size in range(1, 9)}

    def work(size: int) -> None:
        texts[size] = compile_for(programs[size], H200)

    threads = [threading.Thread(target=work, args=(size,)) for size in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"f32[{size}]" in texts[size] for size in programs)


def _run(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)


PREAMBLE = """
import os, sys, jax, numpy as np
from jax_stitch import devices
from jax_stitch.frontend.capture import client, lower
h200 = devices.get("h200")
def compile_for(program, device):
    return client.compile_described(program, device.target_config, {})
program = lower(lambda a: a + 1, (jax.ShapeDtypeStruct((8,), np.float32),), h200).bytecode()
compile_for(program, h200)
pid = client.COMPILER.child.pid
"""


@needs_plugin
def test_a_forked_child_starts_its_own_and_leaves_the_parents() -> None:
    """Two processes on the same pipes would read each other's replies. The fork happens while the lock is held."""
    done = _run(
        PREAMBLE
        + """
import warnings; warnings.simplefilter("ignore")
with client.COMPILER.lock:
    child = os.fork()
    if child == 0:
        compile_for(program, h200)
        client_pid = client.COMPILER.child.pid
        client.COMPILER.shut_down()
        os._exit(0 if client_pid != pid else 1)
assert os.waitpid(child, 0)[1] == 0
compile_for(program, h200)
assert client.COMPILER.child.pid == pid
"""
    )
    assert done.returncode == 0, done.stderr


@needs_plugin
@pytest.mark.parametrize("end", ["sys.exit(0)", "os.kill(os.getpid(), 9)"])
def test_no_process_is_left_behind(end: str) -> None:
    done = _run(PREAMBLE + f"print(pid, flush=True)\n{end}")
    pid = int(done.stdout)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return  # Dead, and waiting for a container's init to notice.
        time.sleep(0.05)
    pytest.fail(f"the compiler process {pid} outlived its owner")


def test_the_worker_does_not_mix_output_with_replies() -> None:
    """Whatever a library prints to standard output must not reach the reply stream."""
    code = """if True:
        import os, sys
        from jax_stitch.frontend.capture import worker
        from jax_stitch.util.child import serve
        worker.compile_described = lambda *a: (os.write(1, b"noise"), print("noise", flush=True), "text")[-1]
        serve(worker.answer)
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    request = encode({"target_config": "", "options": []}, b"program")
    done = subprocess.run([sys.executable, "-c", code], env=environment, input=request, capture_output=True, timeout=60)
    assert decode(io.BytesIO(done.stdout).read) == ({"ok": True}, b"text"), done.stderr
    assert done.stdout == encode({"ok": True}, b"text")
