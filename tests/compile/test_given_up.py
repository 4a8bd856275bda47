"""Kernels that a compiler came to no end with: what later processes do with them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import CompilerTimeout, compile_all, compile_host, compile_ptx, given_up, ptx, toolchain
from jax_stitch.backend.compile.process import Together, together
from jax_stitch.jit.rebuilt import find
from jax_stitch.util import store
from tests.compile.processes import stand_in

SLOW = "slow_one"


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk, and what was given up."""


@pytest.fixture
def runs(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the compiler was given a kernel called ``SLOW``, with which it comes to no end."""
    log = tmp_path / "runs"
    hang = f'case "$word" in *.cc) if grep -q {SLOW} "$word"; then echo >> {log}; sleep 3600; fi;; esac'
    monkeypatch.setenv("CXX", stand_in(tmp_path, f'for word in "$@"; do {hang}; done\nexec $real "$@"'))
    monkeypatch.setenv("JAX_STITCH_COMPILE_TIMEOUT", "0.5")
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def given_up_on(source: Any) -> str:
    with pytest.raises(CompilerTimeout) as raised:
        compile_host(source)
    return str(raised.value)


def test_nobody_waits_for_it_again(source: Any, runs: Callable[[], int]) -> None:
    """A kernel that took the compiler's whole time at each start of a program."""
    assert "retry" not in given_up_on(source(SLOW))
    told = given_up_on(source(SLOW))
    assert runs() == 1
    assert "was stopped after 0.5 s" in told and datetime.date.today().isoformat() in told and "retry()" in told


def test_more_seconds_are_a_new_attempt(source: Any, runs: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that a longer time does not help, since it was given up with a shorter one."""
    given_up_on(source(SLOW))
    monkeypatch.setenv("JAX_STITCH_COMPILE_TIMEOUT", "0.7")
    given_up_on(source(SLOW))
    assert runs() == 2
    monkeypatch.setenv("JAX_STITCH_COMPILE_TIMEOUT", "0.6")
    given_up_on(source(SLOW))
    assert runs() == 2


@pytest.mark.parametrize(("days", "tried"), [(-1, True), (0, False), (6, False), (7, True), (400, True)])
def test_it_is_tried_again_some_days_later(
    source: Any, runs: Callable[[], int], monkeypatch: pytest.MonkeyPatch, days: int, tried: bool
) -> None:
    """A failure that is held against a kernel for ever, or one that a wrong clock dates tomorrow."""
    given_up_on(source(SLOW))
    (path,) = (store.folder() / given_up.KIND).iterdir()
    mark = store.read(given_up.KIND, path.name)
    assert mark is not None
    then = datetime.date.today() - datetime.timedelta(days)
    store.write(given_up.KIND, path.name, mark.replace(datetime.date.today().isoformat().encode(), str(then).encode()))
    given_up_on(source(SLOW))
    assert runs() == 1 + tried


@pytest.mark.parametrize("content", [b"", b"{}", b'{"day": "soon", "seconds": 9.0, "reason": ""}'])
def test_what_cannot_be_read_says_nothing(source: Any, runs: Callable[[], int], content: bytes) -> None:
    """An entry of another version of this package, on which a call raises."""
    given_up_on(source(SLOW))
    (path,) = (store.folder() / given_up.KIND).iterdir()
    store.write(given_up.KIND, path.name, content)
    given_up_on(source(SLOW))
    assert runs() == 2


def test_one_stopped_for_the_sake_of_another_is_not_blamed(source: Any, cache: Path) -> None:
    """Kernels that are compiled beside a slow one, and are given up with it for days."""
    group = Together()
    token = together.set(group)
    group.given_up = True
    try:
        with pytest.raises(CompilerTimeout):
            compile_ptx(source(), "sm_90")
    finally:
        together.reset(token)
    assert not list((store.folder() / given_up.KIND).glob("*"))


def test_others_are_compiled_together_without_it(source: Any, runs: Callable[[], int]) -> None:
    """Small kernels that wait for a slow one each time, since one run of the compiler makes all of them."""
    given_up_on(source(SLOW))
    sources = [source(SLOW), *(source(f"kernel_{n}", f"{n}.0f") for n in range(3))]
    with pytest.raises(CompilerTimeout) as raised:
        compile_all(sources, "host")
    assert raised.value.kernel == SLOW and runs() == 1
    assert len(compile_all(sources[1:], "host")) == 3


def test_kernels_for_gpus(source: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of NVRTC."""
    runs = []

    def never(*_: Any) -> Any:
        runs.append(1)
        raise CompilerTimeout("NVRTC came to no end after 20 s.")

    with monkeypatch.context() as hanging:
        hanging.setattr(ptx, "within_deadline", never)
        for _ in range(3):
            with pytest.raises(CompilerTimeout, match="no end after 20 s"):
                compile_ptx(source(), "sm_90")
    assert len(runs) == 1
    with pytest.raises(CompilerTimeout):
        compile_ptx(source(), "sm_90")
    assert compile_ptx(source(), "sm_80").sm == "sm_80"
    given_up.forget()
    assert compile_ptx(source(), "sm_90").sm == "sm_90"


X = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
W = np.full((512, 512), 0.5, np.float32)


def fresh() -> Callable[..., Any]:
    """A new function with the same two kernels, between which a product is."""

    def two_kernels(x: Any, w: Any) -> Any:
        # A product by a named algorithm is XLA's.
        product = jax.lax.dot(x - x.mean(-1, keepdims=True), w, precision=jax.lax.DotAlgorithmPreset.F32_F32_F32)
        return jax.nn.softmax(product, -1)

    return two_kernels


@pytest.fixture
def slow_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one where the compiler is given the first kernel of ``fresh``, with which it comes to no end."""
    name, given = stitch_jit(fresh()).plan(X, W).kernels[0].name, list[int]()
    usual = toolchain.shared_object

    def shared_object(kernel: str, text: str, *args: Any, **options: Any) -> bytes:
        if name in text:
            given.append(1)
            raise CompilerTimeout("The compiler was stopped after 20 s.")
        return usual(kernel, text, *args, **options)

    monkeypatch.setattr(toolchain, "shared_object", shared_object)
    return given


@pytest.mark.filterwarnings("error::jax_stitch.StitchWarning")
@pytest.mark.parametrize("mode", ["now", "async"])
def test_the_other_kernels_of_a_function_are_kernels(slow_first: list[int], mode: Any, monkeypatch: Any) -> None:
    """A later process that waits again, or one that leaves all of the function to XLA for a kernel that it knows."""
    monkeypatch.setattr(find, "make_elsewhere", lambda *_: None)
    for most in (2, 0, 0):  # At first together with the other kernel, and alone.
        function = stitch_jit(fresh(), mode=mode)
        np.testing.assert_allclose(function(X, W), np.full(X.shape, 1 / 512), rtol=1e-3)
        assert function.wait(60)
        assert [program.kernels for program in function.status().programs] == [1]
        assert bool(most) <= len(slow_first) <= most
        slow_first.clear()


def test_retry_tries_it_again(slow_first: list[int]) -> None:
    """A user who has freed the machine, and cannot have the kernel back."""
    function = stitch_jit(fresh(), mode="now")
    function(X, W)
    slow_first.clear()
    function.retry()
    function(X, W)
    assert slow_first
