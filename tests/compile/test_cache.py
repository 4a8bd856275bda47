"""Kernels on disk: what changes a kernel changes its entry, and no damaged entry is ever used."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

from jax_stitch.backend.compile import (
    KernelCompileError,
    compile_all,
    compile_host,
    host,
    load_host,
    parallel,
    toolchain,
)
from jax_stitch.backend.compile.headers import headers as runtime_headers
from jax_stitch.util.values import replace


def run(kernel, size: int = 1024) -> np.ndarray:
    x, y = np.zeros(size, np.float32), np.empty(size, np.float32)
    buffers = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    function(buffers, 0, size // 256)
    return y


@pytest.fixture
def builds(monkeypatch) -> list[str]:
    """The names of what the compiler was really run for."""
    seen: list[str] = []
    compile = toolchain.shared_object
    monkeypatch.setattr(
        toolchain, "shared_object", lambda name, *rest, **more: (seen.append(name), compile(name, *rest, **more))[1]
    )
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


def several(source, count: int = 5):
    return [source(name=f"kernel{n}", value=f"{n}.0f") for n in range(count)]


def test_small_kernels_are_compiled_together(source, cache, builds, monkeypatch):
    """Each run of a compiler costs as much as a small kernel; a later process finds each by itself."""
    monkeypatch.setattr(parallel, "usable_cores", lambda: 1)
    kernels = compile_all(several(source), "host")
    assert len(builds) == 1
    assert [run(k)[0] for k in kernels] == [1, 2, 3, 4, 5]
    forget(monkeypatch)
    monkeypatch.setattr(host, "_of_batch", {})
    again = [load_host(k.name, k.id) for k in kernels]
    assert [run(k)[0] for k in again] == [1, 2, 3, 4, 5] and len({k.library._handle for k in again}) == 1
    assert [k.id for k in kernels] == [compile_host(s).id for s in several(source)] and len(builds) == 1


@pytest.mark.parametrize("most, runs", [(1 << 20, {2}), (2000, {4, 5, 6, 7}), (10, {12})])
def test_as_many_cores_as_there_are_get_work(source, cache, builds, monkeypatch, most, runs):
    """And none gets a text without kernels."""
    monkeypatch.setattr(parallel, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_FEW", 10)
    monkeypatch.setattr(parallel, "_TOGETHER", most)
    kernels = compile_all(several(source, 12), "host")
    assert [k.name for k in kernels] == [f"kernel{n}" for n in range(12)] and len(builds) in runs


def test_only_those_that_are_missing_are_compiled(source, cache, builds):
    first = compile_host(several(source)[2])
    assert compile_all(several(source), "host")[2] is first
    assert builds[0] == "kernel2" and not any("kernel2" in name for name in builds[1:])


def test_kernels_of_one_name_are_not_together(source, cache, builds):
    """A shared object has one function of a name."""
    alike = [source(value=f"{n}.0f") for n in range(3)]
    assert [run(k)[0] for k in compile_all(alike, "host")] == [1, 2, 3]


@pytest.mark.parametrize("damage", ["missing", "cut", "another"])
def test_what_was_compiled_together_is_compiled_again_where_it_is_damaged(source, cache, builds, monkeypatch, damage):
    monkeypatch.setattr(parallel, "usable_cores", lambda: 1)
    compile_all(several(source), "host")
    (whole,) = [path for path in cache.iterdir() if path.stat().st_size > 5000]
    match damage:
        case "missing":
            whole.unlink()
        case "cut":
            whole.write_bytes(whole.read_bytes()[:3000])
        case "another":
            host.store.write("kernels", whole.name, toolchain.shared_object("x", "int x;", host.FLAGS))
    forget(monkeypatch)
    monkeypatch.setattr(host, "_of_batch", {})
    assert [run(k)[0] for k in map(compile_host, several(source))] == [1, 2, 3, 4, 5]


def test_one_that_the_compiler_refuses_is_named(source, cache):
    broken = [*several(source, 3), source(name="broken", value="nonsense")]
    with pytest.raises(KernelCompileError, match="'broken'"):
        compile_all(broken, "host")


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
    noted = replace(plain, text=plain.text.replace("#else", "  // from model.py:31\n#else"))
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


def compile_in_child(source) -> int:
    """The number of a process that compiles and runs a kernel; its status is 0 where that goes well."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(run(compile_host(source)).sum() != 2048.0)
        finally:
            os._exit(status)
    return child


def test_processes_side_by_side(source, cache):
    children = [compile_in_child(source()) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
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
