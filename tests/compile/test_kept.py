"""Only what can be loaded is kept, and only where it can be run: one bad run of a compiler, or another kind of node
with the same home folder, must not spoil the cache for every later process.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from jax_stitch.backend.compile import CompilerTrouble, compile_host, host, load_host, surroundings, toolchain
from jax_stitch.backend.launch import host as launch_host
from jax_stitch.backend.launch import native, shipped
from jax_stitch.devices import get
from jax_stitch.util import store
from tests.compile.test_cache import forget, run

GARBAGE = ["not an object", "an empty file", "another machine's", "no such symbol"]


def bad_object(what: str) -> bytes:
    real = toolchain.shared_object("other", 'extern "C" void other() {}', ["-O0"])
    foreign = bytearray(real)
    foreign[18:20] = b"\xb7\x00" if real[18:20] != b"\xb7\x00" else b"\x3e\x00"  # e_machine: AArch64, or x86-64
    texts = {"not an object": b"not an object", "an empty file": b"", "another machine's": bytes(foreign)}
    return texts.get(what, real)


@pytest.fixture
def broken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes ``$CXX`` a compiler that says it has succeeded, the first time with something else."""

    def install(what: str) -> None:
        bad, done = tmp_path / "bad", tmp_path / "done"
        bad.write_bytes(bad_object(what))
        script = tmp_path / "c++"
        real = shlex.join(toolchain.compiler())
        script.write_text(
            f"""#!/bin/sh
case "$*" in *--version*) exec {real} "$@";; esac
[ -e {done} ] && exec {real} "$@"
: > {done}
while [ "$1" != -o ]; do shift; done
cp {bad} "$2"
"""
        )
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))

    return install


@pytest.mark.parametrize("what", GARBAGE)
def test_what_cannot_be_loaded_is_not_kept(source, cache, broken_once, monkeypatch, what: str) -> None:
    """It was stored before it was loaded, and every later process failed on it until the cache was cleared."""
    broken_once(what)
    with pytest.raises(CompilerTrouble, match="cannot be loaded"):
        compile_host(source())
    assert not list(cache.glob("*.so"))
    forget(monkeypatch)
    assert (run(compile_host(source())) == 2).all(), "the next one is well"


def test_nor_a_handler(cache, broken_once, monkeypatch) -> None:
    broken_once("not an object")
    monkeypatch.setattr(shipped, "content", lambda: None)
    monkeypatch.setattr(native, "_loaded", [])
    for attempt in range(2):
        monkeypatch.setattr(launch_host, "TARGET", f"jax_stitch_test_{attempt}")
        if not attempt:
            with pytest.raises(CompilerTrouble):
                launch_host._handler.__wrapped__()
        else:
            assert launch_host._handler.__wrapped__().jax_stitch_register


@pytest.mark.parametrize("what", GARBAGE)
def test_what_is_kept_and_cannot_be_loaded_counts_as_missing(source, cache, monkeypatch, what: str) -> None:
    """Whole, and of no use: of another machine, or of a version that kept what it had not loaded."""
    made = compile_host(source())
    (path,) = cache.glob("*.so")
    store_name = path.name
    bad = bad_object(what)
    store.write("kernels", store_name, bad)
    forget(monkeypatch)
    assert load_host(made.name, made.id) is None
    assert path.with_name(store_name + store.DAMAGED).exists() and not path.exists()
    store.write("kernels", store_name, bad)
    assert (run(compile_host(source())) == 2).all()
    forget(monkeypatch)
    monkeypatch.setattr(toolchain, "shared_object", lambda *_: pytest.fail("it is kept again"))
    compile_host(source())


FACTS = {
    "the machine": lambda patch: patch.setattr("platform.machine", lambda: "riscv64"),
    "the C library": lambda patch: patch.setattr("os.confstr", lambda name: "glibc 2.17"),
    "no GNU C library": lambda patch: patch.setattr("os.confstr", lambda name: None),
    "the processor": lambda patch: patch.setattr(toolchain, "_cpuinfo", lambda: ["model name : Other", "flags : sse2"]),
    "an unknown processor": lambda patch: patch.setattr(toolchain, "_cpuinfo", lambda: []),
    "the compiler's headers": lambda patch: patch.setenv("CPATH", "/opt/other"),
}


def forget_the_machine() -> None:
    for found in (toolchain.machine, toolchain.processor, toolchain.identity):
        found.cache_clear()


@pytest.fixture(autouse=True)
def remembered():
    yield
    forget_the_machine()


@pytest.mark.parametrize("fact", FACTS)
def test_each_kind_of_node_has_kernels_of_its_own(source, cache, monkeypatch, fact: str) -> None:
    """Nodes with one home folder: what one keeps another must not run."""
    first = compile_host(source()).id
    before = surroundings.surroundings(get("cpu"))
    with monkeypatch.context() as patch:
        FACTS[fact](patch)
        forget_the_machine()
        assert compile_host(source()).id != first
        assert surroundings.surroundings(get("cpu")) != before, "programs too"
    forget_the_machine()
    assert compile_host(source()).id == first


@pytest.mark.parametrize("fact", ["the machine", "the C library"])
def test_and_a_handler_of_its_own(cache, monkeypatch, fact: str) -> None:
    seen = []
    monkeypatch.setattr(host, "_cached_or_built", lambda id, *_: seen.append(id))
    for fake in (lambda patch: None, FACTS[fact]):
        with monkeypatch.context() as patch:
            fake(patch)
            forget_the_machine()
            host.load_library("handler", "", [], "")
    assert len(set(seen)) == 2


def test_code_for_an_unknown_processor_runs_on_every_one(source, cache, monkeypatch) -> None:
    """Where /proc/cpuinfo cannot be read two processors look alike, and one has not the other's instructions."""
    used = []
    compile = toolchain.shared_object
    monkeypatch.setattr(
        toolchain, "shared_object", lambda name, text, options: (used.append(options), compile(name, text, options))[1]
    )
    compile_host(source())
    monkeypatch.setattr(toolchain, "_cpuinfo", lambda: [])
    forget_the_machine()
    compile_host(source())
    assert [("-march=native" in options) for options in used] == [True, False]
