"""The disk cache: what changes a kernel changes its entry, and no damaged entry is ever used."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jax_stitch import cachedir
from jax_stitch.compile import cache as entries
from jax_stitch.compile import compile_host, headers, host, toolchain
from jax_stitch.compile.headers import headers as runtime_headers


def run(kernel, size: int = 1024) -> np.ndarray:
    x, y = np.zeros(size, np.float32), np.empty(size, np.float32)
    buffers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    function(buffers, 0, size // 256)
    return y


@pytest.fixture
def builds(monkeypatch) -> list[str]:
    """The names of what the compiler was really run for."""
    seen: list[str] = []
    compile = toolchain.shared_object
    monkeypatch.setattr(toolchain, "shared_object", lambda name, *rest: (seen.append(name), compile(name, *rest))[1])
    return seen


def forget(monkeypatch) -> None:
    monkeypatch.setattr(host, "_loaded", {})


def test_second_process_finds_it(source, cache, builds, monkeypatch):
    first = compile_host(source())
    forget(monkeypatch)
    second = compile_host(source())
    assert builds == ["kernel"]
    assert first.id == second.id
    assert (run(second) == 2).all()


def test_same_process_loads_once(source, cache, builds):
    assert compile_host(source()) is compile_host(source())
    assert builds == ["kernel"]


def test_text_headers_and_processor_count(source, cache, builds, monkeypatch):
    ids = {compile_host(source()).id, compile_host(source(value="2.0f")).id}
    changed = {**runtime_headers(), "stitch.h": "// changed"}
    monkeypatch.setattr(host, "headers", lambda: changed)
    ids.add(compile_host(source()).id)
    monkeypatch.setattr(toolchain, "processor", lambda: "another processor")
    ids.add(compile_host(source()).id)
    monkeypatch.setattr(toolchain, "identity", lambda command: "another compiler")
    ids.add(compile_host(source()).id)
    assert len(ids) == 5


@pytest.mark.parametrize("damage", ["truncated", "empty", "one byte", "no trailer", "another's"])
def test_damaged_entries_are_rebuilt(source, cache, builds, monkeypatch, damage):
    path = compile_host(source()).path
    assert path.parent == cache
    content = path.read_bytes()
    path.unlink()  # a new file, as it is mapped
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:middle],
            "empty": b"",
            "one byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "no trailer": content[:-40],
            "another's": b"#!/bin/sh\n",
        }[damage]
    )
    forget(monkeypatch)
    assert (run(compile_host(source())) == 2).all()
    assert len(builds) == 2
    forget(monkeypatch)
    compile_host(source())
    assert len(builds) == 2


def test_content_survives_as_it_was(cache):
    entries.put("entry", b"\x00content\xff")
    assert entries.get("entry") == b"\x00content\xff"
    assert entries.get("other") is None


def compile_in_child(source, results) -> None:
    kernel = compile_host(source)
    results.put(float(run(kernel).sum()))


def test_processes_side_by_side(source, cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [context.Process(target=compile_in_child, args=(source(), results)) for _ in range(3)]
    for child in children:
        child.start()
    assert [results.get(timeout=60) for _ in children] == [2048.0] * 3
    for child in children:
        child.join()
    assert len(list(cache.glob("*.so"))) == 1


WRITE_FOR_EVER = """
import sys
from jax_stitch.compile import cache
while True:
    for n in range(3):
        cache.put(f"entry{n}", bytes([n]) * 4_000_000)
    print("wrote", flush=True)
"""


def test_killed_while_writing(cache):
    """Whatever moment a process dies at, an entry is sound or missing."""
    root = Path(headers.__file__).resolve().parents[2]
    for delay in (0.001, 0.004, 0.009):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER], stdout=subprocess.PIPE, cwd=root, env=os.environ
        )
        assert child.stdout is not None and child.stdout.readline() == b"wrote\n"
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        for n in range(3):
            content = entries.get(f"entry{n}")
            assert content == bytes([n]) * 4_000_000


def test_folder_that_cannot_be_written(source, tmp_path, monkeypatch, builds):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(blocked))
    forget(monkeypatch)
    cachedir._fallback.cache_clear()
    with pytest.warns(UserWarning, match="cannot write its cache"):
        kernel = compile_host(source())
    assert (run(kernel) == 2).all()


def test_folder_that_forbids_execution(source, cache, monkeypatch):
    opened = ctypes.CDLL

    def open_elsewhere(path: str) -> ctypes.CDLL:
        if Path(path).parent == cache:
            raise OSError("failed to map segment from shared object")
        return opened(path)

    monkeypatch.setattr(ctypes, "CDLL", open_elsewhere)
    assert (run(compile_host(source())) == 2).all()


def test_disk_full(source, cache, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        if path.parent == cache:
            raise OSError(28, "No space left on device")
        cachedir.write_atomically(path, data)

    monkeypatch.setattr(entries, "write_atomically", full)
    kernel = compile_host(source())
    assert kernel.path.parent != cache
    assert (run(kernel) == 2).all()
