"""Programs made in a child process: the same as this process would make, whatever becomes of the child."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir

from jax_stitch import StitchWarning, devices, stitch_jit
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.jit.programs.program import RebuiltProgram
from jax_stitch.jit.rebuilt import elsewhere, find
from jax_stitch.jit.rebuilt.elsewhere import MAKER, make_elsewhere
from jax_stitch.jit.rebuilt.finish import finish
from jax_stitch.jit.stitching.conditions import conditions
from jax_stitch.jit.stitching.make import make
from jax_stitch.jit.stitching.model import KernelProgram
from jax_stitch.util.child import ChildDied, ChildFailed
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from tests.modes.conftest import LONG

X = np.linspace(-1.0, 2.0, 16 * 96, dtype=np.float32).reshape(16, 96)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def exactly(x: Any) -> Any:
    """The softmax in float64."""
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm_gradient(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return jnp.sin(centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w).sum()

    return jax.grad(loss, (0, 1))(x, w)


def walk(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (jnp.tanh(c * 1.5 - 0.1), c.sum()), x, length=20)


def around_a_product(x: Any) -> Any:
    return softmax(softmax(x) @ jnp.linspace(0.0, 1.0, 96 * 8, dtype=x.dtype).reshape(96, 8))


F32, BF16 = jax.ShapeDtypeStruct(X.shape, jnp.float32), jax.ShapeDtypeStruct(X.shape, jnp.bfloat16)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (softmax, (F32,)),
    "half precision": (softmax, (BF16,)),
    "gradient": (layer_norm_gradient, (F32, jax.ShapeDtypeStruct((96,), jnp.float32))),
    "loop": (walk, (F32,)),
    "constants": (around_a_product, (F32,)),
    "no kernels": (lambda x: x @ x.T, (F32,)),
    "calls": (lambda x: softmax(jax.pure_callback(np.sin, F32, jax.pure_callback(np.cos, F32, x * 2)) + x), (F32,)),
}


def made_both_ways(
    fun: Callable[..., Any], args: tuple[Any, ...], of: Device, at: Device
) -> tuple[RebuiltProgram, RebuiltProgram]:
    """The programs of this process and of the child: captured for the device ``of``, to run ``at`` another."""
    captured = capture(fun, args, of)
    own = make(captured, at, at, PlannerName.BEAM, "", Autotune.OFF)
    other = make_elsewhere(captured, at, at, PlannerName.BEAM, "")
    assert other is not None
    return finish(captured, own), finish(captured, other)


def operations(program: RebuiltProgram) -> list[str]:
    """The operations of its module in some order, without names: XLA counts them otherwise in what a call wraps."""
    found: list[str] = []

    def visit(operation: Any) -> ir.WalkResult:
        if not operation.regions and operation.name not in ("func.call", "func.return"):
            attributes = {a: str(operation.attributes[a]) for a in operation.attributes}
            types = [str(result.type) for result in operation.results]
            found.append(re.sub("[0-9a-f]{64}", "id", f"{operation.name} {attributes} {types}"))
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context():
        ir.Module.parse(program.module).operation.walk(visit)
    return sorted(found)


DEFAULT = frozenset({"gradient", "loop", "no kernels", "calls"})


@pytest.mark.parametrize("case", [c if c in DEFAULT else pytest.param(c, marks=pytest.mark.slow) for c in PROGRAMS])
def test_it_makes_the_program_that_this_process_would(case: str) -> None:
    cpu = devices.get("cpu")
    own, other = made_both_ways(*PROGRAMS[case], cpu, cpu)
    assert own.name == other.name and [name for name, _ in own.kernels] == [name for name, _ in other.kernels]
    assert operations(own) == operations(other) and own.callbacks == other.callbacks


@pytest.mark.skipif(not cuda_plugin_installed(), reason="the CUDA plugin is not installed")
@pytest.mark.parametrize("case", ["gradient", "loop"])
def test_for_a_gpu_the_parent_compiles(case: str) -> None:
    """XLA needs the GPU, which the child leaves to its parent; planning, NVRTC and the rest do not."""
    h200 = devices.get("h200")
    own, other = made_both_ways(*PROGRAMS[case], h200, replace(h200, attached=True))
    assert operations(own) == operations(other) and "custom_call" in str(operations(own))


@pytest.fixture
def only_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process makes nothing itself."""

    def refuse(*_: Any) -> KernelProgram:
        raise AssertionError("made in this process")

    monkeypatch.setattr(find, "make", refuse)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What this process makes itself."""
    made: list[str] = []

    def note(captured: Any, *rest: Any) -> KernelProgram:
        made.append(captured.name)
        return make(captured, *rest)

    monkeypatch.setattr(find, "make", note)
    yield made


def fresh(fun: Callable[..., Any]) -> Any:
    """Another function to JAX and to us, of the same name."""

    def again(*args: Any) -> Any:
        return fun(*args)

    again.__name__ = fun.__name__
    return stitch_jit(again, mode="async")


def check(function: Any, *args: Any) -> None:
    for _ in range(2):
        np.testing.assert_allclose(function(*args), exactly(args[0]), rtol=2e-6, atol=1e-7)
        assert function.wait(LONG)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("only_elsewhere")
def test_a_function_in_the_background() -> None:
    check(fresh(softmax), X)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("only_elsewhere")
def test_the_child_works_under_the_options_of_the_caller() -> None:
    function = fresh(softmax)
    for _ in range(2):
        with jax.enable_x64(True):
            found = function(X.astype(np.float64))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, exactly(X), rtol=1e-13)
        assert function.wait(LONG)
    check(fresh(softmax), X)


@pytest.mark.usefixtures("only_elsewhere")
def test_the_child_gives_way_to_all_others() -> None:
    check(fresh(softmax), X)
    assert MAKER.child is not None
    if hasattr(os, "SCHED_IDLE"):
        assert os.sched_getscheduler(MAKER.child.pid) == os.SCHED_IDLE
    assert os.getpriority(os.PRIO_PROCESS, MAKER.child.pid) == 19


def test_what_has_effects(only_elsewhere: None) -> None:
    """The child only plans: what is called, and in which order, the parent knows."""
    seen: list[float] = []

    def fun(x: Any) -> Any:
        jax.debug.callback(lambda x: seen.append(float(x)), x[0, 0])
        return softmax(x)

    function = stitch_jit(fun, mode="async")
    check(function, X)
    jax.effects_barrier()
    assert seen == [float(X[0, 0])] * 2


def test_python_functions_keep_their_places(only_elsewhere: None) -> None:
    """The child knows them by number; one of them XLA drops, and one is called twice."""

    def fun(x: Any) -> Any:
        def called(of: Callable[[Any], Any], x: Any) -> Any:
            return jax.pure_callback(lambda x: of(np.asarray(x)), F32, x)

        unused = called(lambda x: x * 0, x)
        halved = called(lambda x: x * 0.5, softmax(x) + unused[:0].sum())
        raised = called(lambda x: x + 3, called(lambda x: x - 1, jnp.sin(halved)))
        return softmax(raised) - halved

    function = stitch_jit(fun, mode="async")
    function(X)
    assert function.wait(LONG)
    np.testing.assert_allclose(function(X), jax.jit(fun)(X), rtol=1e-5, atol=1e-6)
    assert [p.state for p in function.status().programs] == ["stitched"]


@pytest.mark.filterwarnings("error")
def test_another_version_of_ourselves_is_not_asked(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was edited or updated while its parent runs."""
    monkeypatch.setattr(elsewhere, "conditions", lambda device: conditions(device) | {"source": "another"})
    check(fresh(softmax), X)
    assert here == ["softmax"]


@pytest.mark.filterwarnings("error")
def test_without_an_interpreter(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that brings its own, ``sys.executable`` is the program."""
    MAKER.shut_down()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    check(fresh(softmax), X)
    assert here == ["softmax"] and MAKER.child is None


def test_a_missing_compiler_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child sees the environment as it is now, not as it was when the child began."""
    check(fresh(softmax), X)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(StitchWarning, match="no-such-compiler") as warnings:
        check(fresh(softmax), X)
    assert len(warnings) == 1


@pytest.mark.filterwarnings("ignore:JAX Stitch cannot write")
def test_nowhere_to_store_it(here: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(file / "folder"))
    check(fresh(backwards), X)  # Of which no other test has loaded the kernel.
    assert here == ["backwards"]


def backwards(x: Any) -> Any:
    """The softmax once more."""
    return softmax(x[::-1, ::-1])[::-1, ::-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("only_elsewhere")
def test_a_child_that_is_killed_is_replaced() -> None:
    """At any moment: that it dies of the function itself is the least likely cause the first time."""
    check(fresh(softmax), X)
    for patience in (0.0, 0.1, 0.4):
        assert MAKER.child is not None
        before = MAKER.child.pid
        killer = threading.Timer(patience, os.kill, (before, signal.SIGKILL))
        killer.start()
        check(fresh(longer_softmax), X)
        killer.join()
        check(fresh(softmax), X)
        assert MAKER.child.pid != before


def longer_softmax(x: Any) -> Any:
    """The softmax again, by way of a program that takes a while to plan."""
    y = x
    for _ in range(12):
        y = y - jnp.log(jnp.exp(y).sum(-1, keepdims=True))
    return softmax(y)


def test_what_kills_the_child_does_not_kill_its_parent(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def die(request: bytes, timeout: float, told: Any) -> Any:
        asked.append(len(request))
        raise ChildDied("died (exit status -11):\nlast words")

    monkeypatch.setattr(MAKER, "ask", die)
    with pytest.warns(StitchWarning, match="last words") as warnings:
        check(fresh(softmax), X)
    assert len(warnings) == 1 and len(asked) == 2 and not here


def test_one_that_hangs_is_given_up(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(request: bytes, timeout: float, told: Any) -> Any:
        raise ChildFailed(f"was stopped after {timeout} s")

    monkeypatch.setattr(MAKER, "ask", hang)
    check(fresh(softmax), X)
    assert here == ["softmax"]


def test_its_compilers_end_with_it() -> None:
    """Told to end, it leaves neither processes nor folders."""
    check(fresh(softmax), X)
    child = MAKER.child
    assert child is not None
    function = fresh(longer_softmax)
    function(X)
    deadline = time.monotonic() + LONG
    while not (compilers := _children_of(child.pid)) and not function.wait(0) and time.monotonic() < deadline:
        time.sleep(0.002)
    child.stop(5.0)
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in compilers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline and not child.alive
    assert function.wait(LONG)


def _children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []
