"""A cache folder that another machine, or other versions, have filled: what is of no use here is not run.

Each is faked in a process whose cache holds kernels that end it with an illegal instruction, and programs that compute
something else: were one used, it would show.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import pytest

from jax_stitch.backend.compile import host, toolchain
from jax_stitch.jit.primitive import origin_of
from jax_stitch.jit.tiers import identity as calls
from jax_stitch.util.options.planner_names import PlannerName
from tests.seeded_cache import seeded

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
from unittest import mock
import jax, jax.numpy as jnp, jaxlib, numpy as np
from jax_stitch import stitch_jit
from jax_stitch.util import store
from jax_stitch.backend.compile import host, toolchain
from jax_stitch.backend.launch import host as launched
from jax_stitch.jit.programs import identity
from jax_stitch.jit.programs.program import RebuiltProgram
from tests.faults.ground import forget

x = np.random.default_rng(0).standard_normal((16, 48)).astype(np.float32)
expected = np.asarray(jax.nn.softmax(x * 1.5, -1))

def right():
    forget()
    launched._called.clear()
    jax.clear_caches()
    return np.allclose(stitch_jit(lambda x: jax.nn.softmax(x * 1.5, -1), mode="now")(x), expected, atol=1e-5)

host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # It is quicker.

def entries(kind):
    return {path.name for path in (store.folder() / kind).iterdir()}

assert right()
kernels, programs = entries("kernels"), entries("programs")
assert not np.allclose(stitch_jit(lambda x: jax.nn.softmax(x * 2.5, -1), mode="now")(x), expected, atol=1e-5)
(other,) = entries("programs") - programs
other = RebuiltProgram.from_bytes(store.read("programs", other))
sound = {name: RebuiltProgram.from_bytes(store.read("programs", name)) for name in programs}

def poison(deadly):
    for name, own in sound.items():
        for kernel, id in own.kernels if deadly else ():
            text = 'extern "C" void %s(void**, long, long) { __builtin_trap(); }' % kernel
            store.write("kernels", id + ".so", toolchain.shared_object(kernel, text, ["-O0"]))
        store.write("programs", name, own.to_bytes() if deadly else other.to_bytes())

machines = {
    "machine": lambda: mock.patch("platform.machine", lambda: "riscv64"),
    "library": lambda: mock.patch("os.confstr", lambda name: "glibc 2.17"),
    "processor": lambda: mock.patch.object(toolchain, "_cpuinfo", lambda: ["model name : Other", "flags : sse2"]),
    "unknown": lambda: mock.patch.object(toolchain, "_cpuinfo", lambda: []),
    "compiler": lambda: mock.patch.object(toolchain, "compiler", lambda: (*real, "-DOTHER")),
}
versions = {
    "jax": lambda: mock.patch.object(jax, "__version__", "0.99"),
    "jaxlib": lambda: mock.patch.object(jaxlib, "__version__", "0.99"),
    "package": lambda: mock.patch.object(identity, "source", lambda: "another"),
}
real = toolchain.compiler()

def tried(fakes):
    for name, fake in fakes.items():
        with fake():
            for found in (toolchain.machine, toolchain.processor, toolchain.identity):
                found.cache_clear()
            print(name, right(), flush=True)

same = {"same": lambda: mock.patch.dict({})}
poison(deadly=False)
tried(versions | same)
poison(deadly=True)
tried(machines | same)
"""
VERSIONS = ("jax", "jaxlib", "package")
MACHINES = ("machine", "library", "processor", "unknown", "compiler")


def test_what_others_have_kept_is_not_run(tmp_path: Path) -> None:
    """And this test would notice: where nothing is faked, the programs that it plants are run, and the kernels."""
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(seeded(tmp_path / "cache")), "PYTHONPATH": str(ROOT)}
    environment["JAX_STITCH_STRICT"] = "1"
    command = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    said = [f"{name} True" for name in VERSIONS] + ["same False"] + [f"{name} True" for name in MACHINES]
    assert found.stdout.splitlines() == said, f"{found.returncode}: {found.stderr[-2000:]}"
    assert found.returncode == -signal.SIGILL


FACTS = {
    "the machine": ("platform.machine", lambda: "riscv64"),
    "the C library": ("os.confstr", lambda name: "glibc 2.17"),
    "the processor": ("jax_stitch.backend.compile.toolchain._cpuinfo", lambda: ["model name : Other", "flags : sse2"]),
    "the compiler": ("jax_stitch.backend.compile.toolchain.compiler", lambda: ("/bin/sh",)),
    "the package": ("jax_stitch.jit.tiers.identity._PACKAGE", "another"),
}


def _forget() -> None:
    for found in (toolchain.machine, toolchain.processor, toolchain.identity):
        found.cache_clear()


def test_verdicts_are_of_one_machine_and_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is faster on one need not be on another, and names programs that are of no use there."""
    origin = origin_of(abs, PlannerName.BEAM)

    def name() -> str | None:
        _forget()
        return calls.call_name(jax.jit(lambda x: jnp.tanh(x) * 2).trace(jnp.ones(3)), origin, [jnp.ones(3)], {})

    seen = [name()]
    for place, fake in FACTS.values():
        with monkeypatch.context() as patch:
            patch.setattr(place, fake)
            seen.append(name())
    for library in (jax, jaxlib):
        with monkeypatch.context() as patch:
            patch.setattr(library, "__version__", "0.99")
            seen.append(name())
    assert None not in seen and len(set(seen)) == len(seen)
    assert name() == seen[0], "and the same again on the same"


def test_a_handler_is_of_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``CXX="g++ -march=native"`` it, too, has instructions that another processor lacks."""
    names: list[str] = []
    monkeypatch.setattr(host, "_cached_or_built", lambda id, *_: names.append(id))
    for cpuinfo in (toolchain._cpuinfo(), ["model name : Other", "flags : sse2"]):
        monkeypatch.setattr(toolchain, "_cpuinfo", lambda cpuinfo=cpuinfo: cpuinfo)
        _forget()
        host.load_library("handler", "", [], "")
    monkeypatch.undo()
    _forget()
    assert len(set(names)) == 2
