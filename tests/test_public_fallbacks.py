"""Where stitching is impossible or fails, a function runs as plain ``jax.jit``, with one warning that says why."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlo_parser
from jax_stitch import __main__, pipeline, stitch, stitch_jit
from jax_stitch.backend.compile import NvrtcMissing, nvrtc
from jax_stitch.devices import UnknownDeviceError, names
from jax_stitch.frontend.capture import CudaPluginMissing, client
from jax_stitch.frontend.replay.rules import RULES
from jax_stitch.jit import lowering
from jax_stitch.jit.programs.fallback import StitchWarning
from jax_stitch.jit.rebuilt import finish
from jax_stitch.util.store import entries
from tests import public_faults
from tests.light import light
from tests.public_faults import X, broken, fresh, mutating, softmax
from tests.side_by_side import both, fallbacks, kernels, same

__all__ = ["light"]


@pytest.mark.parametrize(
    "use", [lambda f: stitch_jit(f).plan(X, device="h201"), lambda f: stitch(f, schedule_device="h201")]
)
def test_an_unknown_device_names_the_known_ones(use: Any) -> None:
    with pytest.raises(UnknownDeviceError) as caught:
        use(softmax)
    assert "'h201'" in str(caught.value) and "Did you mean 'h200'?" in str(caught.value)
    assert all(name in str(caught.value) for name in names())


@pytest.fixture
def no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "cuda_plugin_installed", lambda: False)


@pytest.fixture
def no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(()))
    nvrtc.nvrtc.cache_clear()
    yield
    nvrtc.nvrtc.cache_clear()


@pytest.mark.parametrize(("missing", "error"), [("no_plugin", CudaPluginMissing), ("no_nvrtc", NvrtcMissing)])
def test_a_gpu_without_its_packages(missing: str, error: type, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(missing)
    stitched = stitch_jit(softmax)
    with pytest.raises(error, match="pip install") as caught:
        stitched.plan(X, device="h200")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 2  # this line, and perhaps the method
    same(stitched(X), jax.jit(softmax)(X))  # it runs all the same


@pytest.mark.parametrize("missing", ["no_plugin", "no_nvrtc"])
def test_the_command_line_without_packages(
    missing: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    request.getfixturevalue(missing)
    (tmp_path / "user_code.py").write_text("import jax\n\ndef f(x):\n    return jax.nn.softmax(x)\n")
    sys.path.insert(0, str(tmp_path))
    try:
        status = __main__.main(["plan", "user_code:f", "--args", "f32[3,4]", "--device", "h200"])
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("user_code", None)
    shown = capsys.readouterr()
    assert status == 2 and "pip install" in shown.err and "Traceback" not in shown.err


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, however often and in whichever form the function is called."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with fallbacks() as messages:
        stitched = stitch_jit(fresh(1.25))
        same(stitched(X), jax.jit(fresh(1.25))(X))
        stitched(X), stitched(X[:2])
        jax.vmap(stitched)(X[None]), jax.grad(lambda x: stitched(x).max())(X), jax.jit(stitched)(X)
    assert len(messages) == 1
    assert messages[0].startswith("fun runs as plain jax.jit: ")
    assert "none of c++, g++, clang++ is on PATH" in messages[0] and "Install one with `" in messages[0]


def test_two_functions_two_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with fallbacks() as messages:
        stitch_jit(fresh(1.5))(X), stitch_jit(fresh(1.75))(X)
    assert len(messages) == 2 and all("$CXX is 'no-such-compiler'" in m for m in messages)


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++ --no-such-option")
    with fallbacks() as messages:
        both(fresh(2.25), X)
    assert len(messages) == 1 and "no-such-option" in messages[0]


def test_it_is_stitched_once_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is not remembered beyond the program that was compiled without."""
    stitched = stitch_jit(fresh(2.5))
    with monkeypatch.context() as patch, fallbacks() as messages:
        patch.setenv("CXX", "no-such-compiler")
        stitched(X)
    assert messages and kernels(stitched, X) == 1


EFFECTS: dict[str, tuple[Callable[..., Any], str]] = {
    "a mutable array": (mutating, "new_ref"),
    "a mutable array and a callback": (lambda x: (jax.debug.callback(lambda v: None, x), mutating(x))[1], "new_ref"),
    "in a loop": (lambda x: jax.lax.fori_loop(0, 2, lambda i, c: mutating(c), x), "new_ref"),
}


@pytest.mark.parametrize("case", EFFECTS)
def test_effects(case: str) -> None:
    fun, instruction = EFFECTS[case]
    with fallbacks() as messages:
        both(fun, X)
        jax.effects_barrier()
    assert len(messages) == 1 and instruction in messages[0]
    assert any(f"{Path(file).name}:" in messages[0] for file in (__file__, public_faults.__file__))


def test_effects_happen_once_for_each_call_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def fun(x: Any) -> Any:
        jax.debug.print("before {}", x[0, 0], ordered=True)
        y = softmax(x)
        jax.debug.print("after {}", y.shape, ordered=True)
        return y

    printed = []
    for jit in (jax.jit, stitch_jit):
        jitted = jit(fun)
        jitted(X), jitted(X), jax.grad(lambda x, f=jitted: f(x).max())(X)
        jax.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("before") == 3


def test_the_stitched_part_of_a_function_with_effects() -> None:
    """The inner function is still stitched where only the outer one has to be left alone."""
    inner = stitch_jit(softmax)
    outer = stitch_jit(lambda x: (mutating(x), inner(x))[1])
    with fallbacks() as messages:
        assert kernels(outer, X) == 1
        same(outer(X), jax.jit(softmax)(X))
    assert len(messages) == 1


def test_an_instruction_without_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sort that is too long for a kernel."""
    monkeypatch.delitem(RULES, "sort")
    with fallbacks() as messages:
        both(lambda x: softmax(jnp.sort(jnp.arange(1 << 16) * x[0, 0])), X)
    assert len(messages) == 1 and "sort (sort" in messages[0] and "JAX has no operation for it" in messages[0]


def test_plans_of_functions_that_are_left_alone() -> None:
    plan = stitch_jit(EFFECTS["a mutable array"][0]).plan(X)
    assert plan.kernels == () and "new_ref" in plan.boundaries[0].reason
    assert "not stitched" in str(plan)


def test_a_cache_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stitched = stitch_jit(fresh(3.25))
        same(stitched(X), jax.jit(fresh(3.25))(X))
        assert kernels(stitched, X) == 1
    assert len([w for w in caught if "JAX_STITCH_CACHE_DIR" in str(w.message)]) == 1
    assert not [w for w in caught if issubclass(w.category, StitchWarning)]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels that cannot be kept are used all the same."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(entries, "_write_whole", full)
    with fallbacks() as messages, pytest.warns(UserWarning, match="No space left on device"):
        stitched = stitch_jit(fresh(3.5))
        same(stitched(X), jax.jit(fresh(3.5))(X))
        assert kernels(stitched, X) == 1
    assert not messages and not list((tmp_path / "kernels").glob("*.so"))


STAGES: dict[str, tuple[Any, str]] = {
    "capture": (lowering, "capture"),
    "hlo_parser": (hlo_parser, "parse"),
    "graph": (pipeline.graphs, "build"),
    "explore": (pipeline, "explore"),
    "schedule": (pipeline, "schedule"),
    "emit": (pipeline, "emit"),
    "compile": (pipeline, "compile_all"),
    "replay": (finish, "replay"),
    "launch": (finish, "call"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_STITCH_DEBUG", raising=False)
    monkeypatch.setattr(*STAGES[stage], broken)
    with fallbacks() as messages:
        both(fresh(4.0), X)
        stitched = stitch_jit(fresh(4.0))
        stitched(X), stitched(X[:2]), jax.grad(lambda x: stitched(x).max())(X)
    assert len(messages) == 2  # one for each of the two functions
    for message in messages:
        assert "internal error of JAX Stitch at " in message and "KeyError: 'a defect'" in message
        assert "Please report this" in message and ".py:" in message

    with pytest.raises(KeyError, match="a defect") as caught:
        stitch_jit(fresh(4.0), strict=True)(X)
    note = caught.value.__notes__[0]
    assert note.startswith("Internal error of JAX Stitch at ") and f" in fun ({public_faults.__file__}:" in note


def test_a_rebuilt_program_of_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a wrong shape must not reach the user, nor a crash of MLIR's verifier."""
    original = finish.replay
    monkeypatch.setattr(finish, "replay", lambda *graph: lambda arrays: [original(*graph)(arrays)[0][:1]])
    with fallbacks() as messages:
        both(fresh(4.5), X)
    assert len(messages) == 1 and "internal error of JAX Stitch" in messages[0] and "TypeError" in messages[0]


def test_the_warning_points_at_the_function() -> None:
    def mine(x: Any) -> Any:
        return mutating(x)

    with pytest.warns(StitchWarning) as caught:
        stitch_jit(mine)(X)
    assert caught[0].filename == __file__ and caught[0].lineno == mine.__code__.co_firstlineno
    assert issubclass(StitchWarning, UserWarning)


def test_warnings_can_be_silenced_or_made_errors() -> None:
    fun = EFFECTS["a mutable array"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", StitchWarning)
        same(stitch_jit(fun)(X), jax.jit(fun)(X))
        warnings.simplefilter("error", StitchWarning)
        with pytest.raises(StitchWarning):
            stitch_jit(fun)(X)


def test_a_stitched_function_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stitched = stitch_jit(softmax)
        stitched(X), jax.grad(lambda x: stitched(x).max())(X), jax.vmap(stitched)(X[None])
    assert os.environ.get("JAX_STITCH_STRICT") is None
