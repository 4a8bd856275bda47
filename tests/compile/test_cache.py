"""Kernels on disk: what changes a kernel changes its entry, and no damaged entry is ever used."""

from __future__ import annotations

import ctypes
import dataclasses
import multiprocessing
import os

import numpy as np
import pytest

from jax_stitch.compile import compile_host, host, load_host, toolchain
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


def test_comments_do_not_count(source, cache, builds, monkeypatch):
    """They name the lines of one user's program, and another's may need the same kernel."""
    plain = source()
    noted = dataclasses.replace(plain, text=plain.text.replace("#else", "  // from model.py:31\n#else"))
    assert noted.text != plain.text
    compile_host(plain)
    forget(monkeypatch)
    assert compile_host(noted).id == compile_host(plain).id
    assert builds == ["kernel"]
    assert b"model.py" not in next(cache.glob("*.so")).read_bytes()


def test_damaged_kernels_are_built_anew(source, cache, builds, monkeypatch):
    compile_host(source())
    (path,) = cache.glob("*.so")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    forget(monkeypatch)
    assert (run(compile_host(source())) == 2).all()
    assert len(builds) == 2
    forget(monkeypatch)
    compile_host(source())
    assert len(builds) == 2


def test_found_by_name_and_id_with_no_compiler(source, cache, monkeypatch):
    made = compile_host(source())
    forget(monkeypatch)
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = load_host(made.name, made.id)
    assert found is not None and (run(found) == 2).all()
    assert load_host(made.name, "0" * 64) is None


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


def test_what_was_verified_is_what_runs(source, cache, monkeypatch):
    """Another process may replace or cut the file at any moment, even between the check and the loading."""
    compile_host(source())
    (path,) = cache.glob("*.so")
    forget(monkeypatch)
    opened = ctypes.CDLL

    def cut_before(library: str) -> ctypes.CDLL:
        path.write_bytes(b"")
        return opened(library)

    monkeypatch.setattr(ctypes, "CDLL", cut_before)
    kernel = compile_host(source())
    assert path.read_bytes() == b"" and (run(kernel) == 2).all()


def test_folder_that_cannot_be_written(source, tmp_path, monkeypatch, builds):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(blocked))
    forget(monkeypatch)
    with pytest.warns(UserWarning, match="cannot use its cache folder"):
        kernel = compile_host(source())
    assert (run(kernel) == 2).all()


def test_temporary_folder_that_forbids_execution(source, cache, monkeypatch):
    opened = ctypes.CDLL

    def open_elsewhere(path: str) -> ctypes.CDLL:
        if str(cache.parent) not in os.readlink(path):
            raise OSError("failed to map segment from shared object")
        return opened(path)

    monkeypatch.setattr(ctypes, "CDLL", open_elsewhere)
    assert (run(compile_host(source())) == 2).all()
    assert [path.name for path in cache.parent.iterdir()] == ["kernels"], "the copy is gone"
