"""A bad machine is told from a broken compiler and from a defect of ours: each message says what to do."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import threading
from pathlib import Path

import pytest

from jax_stitch.backend.compile import (
    CompilerMissing,
    CompilerTrouble,
    KernelCompileError,
    NoRoom,
    compile_host,
    toolchain,
)
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS
from jax_stitch.backend.compile.load import load
from jax_stitch.jit.primitive import origin_of
from jax_stitch.jit.programs.fallback import reason_of
from jax_stitch.util import store
from jax_stitch.util.options.planner_names import PlannerName
from tests.compile.processes import stand_in

ORIGIN = origin_of(abs, PlannerName.BEAM)


@pytest.mark.parametrize("home", [None, "~"])
def test_a_user_without_a_home(home, monkeypatch, tmp_path) -> None:
    """``HOME`` unset and a number that has no name, as in containers: an internal error was told."""
    monkeypatch.delenv("JAX_STITCH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAX_STITCH_CACHE_DIR", home)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: (_ for _ in ()).throw(KeyError("uid not found")))
    assert store.folder() == tmp_path / f"jax-stitch-{os.geteuid()}"
    store.write("kernels", "a", b"content")
    assert store.read("kernels", "a") == b"content"


def test_its_folder_made_by_another_user_is_not_used(monkeypatch, tmp_path) -> None:
    """Its name can be foretold."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    store.write("kernels", "a", b"content")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert store.read("kernels", "a") is None


@pytest.mark.parametrize(
    "says", ["fatal error: error writing to /tmp/ccXXXX.s: No space left on device", "ld: final link: File too large"]
)
def test_a_full_disk_is_no_broken_compiler(source, cache, tmp_path, monkeypatch, says) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path, f"echo '{says}' >&2; exit 1"))
    with pytest.raises(NoRoom) as raised:
        compile_host(source())
    assert raised.value.errno == errno.ENOSPC
    reason = reason_of(raised.value, ORIGIN)
    assert "TMPDIR" in reason and "report" not in reason and "CXX" not in reason


def test_a_full_disk_that_the_compiler_does_not_name(source, cache, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path, "echo '??' >&2; exit 1"))
    full = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*full[:4], 0, *full[5:])))
    with pytest.raises(NoRoom):
        compile_host(source())


@pytest.mark.parametrize(
    "body",
    ["kill -KILL $$", "echo 'c++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", "exit 137"],
)
def test_a_killed_compiler_is_no_broken_one(source, cache, tmp_path, monkeypatch, body) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path, body))
    with pytest.raises(CompilerTrouble, match="memory") as raised:
        compile_host(source())
    assert "report" not in reason_of(raised.value, ORIGIN)


def test_a_compiler_that_writes_nothing_is_the_broken_one(source, cache, tmp_path, monkeypatch) -> None:
    """The user was asked to report a defect of ours."""
    monkeypatch.setenv("CXX", stand_in(tmp_path, "exit 0"))
    with pytest.raises(CompilerTrouble, match="wrote no file") as raised:
        compile_host(source())
    assert "CXX" in reason_of(raised.value, ORIGIN) and "report" not in reason_of(raised.value, ORIGIN)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_a_machine_without_room_for_a_process(source, cache, monkeypatch, code) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    toolchain.identity(toolchain.compiler())
    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(CompilerTrouble, match=os.strerror(code)) as raised:
        compile_host(source())
    assert "report" not in reason_of(raised.value, ORIGIN)
    assert "report" not in reason_of(OSError(code, os.strerror(code)), ORIGIN)


def test_a_version_in_another_encoding(source, cache, tmp_path, monkeypatch) -> None:
    """As of a compiler that speaks the user's language in Latin-1: it raised ``UnicodeDecodeError``."""
    script = tmp_path / "c++"
    real = " ".join(toolchain.compiler())
    script.write_bytes(
        b"#!/bin/sh\ncase \"$*\" in *--version*) printf 'Co\\303\\251 \\351\\377 libre'; exit;; esac\nexec "
        + real.encode()
        + b' "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert "Coé \\xe9\\xff libre" in toolchain.identity(toolchain.compiler())
    compile_host(source())
    script.write_text("#!/bin/sh\ncase \"$*\" in *--version*) echo 1;; *) printf '\\351 falsch' >&2; exit 1;; esac\n")
    with pytest.raises(KernelCompileError, match="falsch"):
        compile_host(source(value="3.0f"))


@pytest.mark.parametrize("text", ["g++ -DNAME='", 'g++ "', "g++ \\"])
def test_an_unbalanced_quote(text, monkeypatch) -> None:
    monkeypatch.setenv("CXX", text)
    with pytest.raises(CompilerMissing, match="which is no command") as raised:
        toolchain.compiler()
    assert "report" not in reason_of(raised.value, ORIGIN)
    assert toolchain.stamp() == ""


def test_compilers_that_are_gone_by_then(tmp_path, monkeypatch) -> None:
    script = tmp_path / "c++"
    script.symlink_to(tmp_path / "gone")
    monkeypatch.setattr("shutil.which", lambda name, path=None: str(script))
    assert toolchain.stamp() == ""


def test_no_compiler_of_the_working_folder(tmp_path: Path, monkeypatch) -> None:
    """PATH with an empty part, or a dot: a file named ``c++`` in a shared folder would run."""
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\ntouch ran\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CXX", raising=False)
    for start in ("", ".", "./"):
        monkeypatch.setenv("PATH", os.pathsep.join([start, os.environ["PATH"]]))
        assert os.path.isabs(toolchain.compiler()[0]) and toolchain.compiler()[0] != str(fake)


def test_a_linker_without_gccs_library_links_with_what_it_has(source, cache, tmp_path, monkeypatch) -> None:
    """Clang may have another."""
    body = 'case " $* " in *" -lgcc "*) echo "ld: cannot find -lgcc: No such file" >&2; exit 1;; esac; exec $real "$@"'
    monkeypatch.setenv("CXX", stand_in(tmp_path, body))
    assert compile_host(source()).address


def test_threads_of_a_kernel_without_the_cpp_library_end() -> None:
    """What a kernel keeps in a thread is freed as that ends: by the C library itself."""
    text = (
        '#include "stitch.h"\nextern "C" void* keeps() { return st::shared_memory(100); }\n'
        'extern "C" void nothing(void**, int64_t, int64_t) {}'
    )
    library = load(toolchain.shared_object("keeps", text, (*FLAGS, f"-I{RUNTIME}")))
    library.keeps.restype = ctypes.c_void_p
    found: list[int] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(library.keeps()))
        thread.start()
        thread.join()
    assert all(found), found
