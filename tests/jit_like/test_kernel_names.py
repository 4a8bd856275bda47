"""What a profile on a CPU calls stitched kernels."""

from __future__ import annotations

import gzip
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.util import store

X = jnp.linspace(-1.0, 2.0, 64 * 96).reshape(64, 96)


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of other tests are none of this one's."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))


def profiled(call: Callable[[], Any], folder: Path) -> set[str]:
    """The names of what a profile shows of a call."""
    jax.block_until_ready(call())
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(call())
    (path,) = folder.rglob("*.trace.json.gz")
    with gzip.open(path) as file:
        return {event.get("name", "") for event in json.load(file)["traceEvents"]}


def two_softmaxes(x: Any) -> Any:
    with jax.named_scope("attention"):
        x = jax.nn.softmax(x)
    return jax.nn.softmax(x.T) * 11


def in_a_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, c: jax.nn.softmax(jax.nn.softmax(c), 0) * 5, x)


CALLS: dict[str, Callable[[], Any]] = {
    "now": lambda: stitch_jit(two_softmaxes, mode="now"),
    "jit": lambda: jax.jit(lambda x: stitch_jit(two_softmaxes, mode="now")(x) + 1),
    "stitch": lambda: jax.jit(stitch(two_softmaxes)),
    "vmap": lambda: jax.jit(lambda x: jax.vmap(stitch_jit(two_softmaxes, mode="now"))(x[None])),
    "grad": lambda: jax.jit(jax.grad(lambda x: (stitch_jit(two_softmaxes, mode="now")(x) ** 2).sum())),
    "loop": lambda: stitch_jit(in_a_loop, mode="now"),
}


@pytest.mark.parametrize("way", CALLS)
def test_kernels_have_their_names_in_a_profile(way: str, tmp_path: Path) -> None:
    """Catches: ``ffi_call.0`` for each of them."""
    function = CALLS[way]()
    names = profiled(lambda: function(X), tmp_path / "profile")
    assert any(name.startswith("stitch_") and "test_kernel_names_py" in name for name in names), names
    assert not any("ffi_call" in name for name in names)


def test_several_kernels_are_told_apart(tmp_path: Path) -> None:
    function = stitch_jit(lambda x: jax.nn.softmax(jnp.sort(jax.nn.softmax(x)), 0) * 2, mode="now")
    names = {n for n in profiled(lambda: function(X), tmp_path / "profile") if n.startswith("stitch_")}
    assert all(any(number in name for name in names) for number in ("stitch_0", "stitch_1")), names


def first(x: Any) -> Any:
    with jax.named_scope("first_scope"):
        return jax.nn.softmax(jnp.tanh(jax.nn.softmax(x))) * 13


first_again = first


def hlo_of(fun: Any) -> str:
    jax.clear_caches()
    return str(stitch_jit(fun, mode="now").lower(X).compile().as_text())


def kernel_call(text: str) -> str:
    (line,) = [line for line in text.splitlines() if "jax_stitch_host_kernel" in line]
    return line


def test_another_function_of_the_same_program_has_its_own_names() -> None:
    """Catches: lines and scopes of whatever script has planned the program first, in a profile of another one."""

    def other(x: Any) -> Any:
        with jax.named_scope("other_scope"):
            return jax.nn.softmax(jnp.tanh(jax.nn.softmax(x))) * 13

    other.__name__ = other.__qualname__ = "first"
    line = inspect.getsourcelines(first)[1] + 2
    made = kernel_call(hlo_of(first))
    assert f"first_scope/stitch_0_reduce_max(test_kernel_names.py {line})" in made
    count = len(list(store.folder().glob("programs/*")))
    again = kernel_call(hlo_of(first_again))
    assert "first_scope" in again and f"_py_{line}" in again, "found on disk, for the same function"
    foreign = kernel_call(hlo_of(other))
    assert len(list(store.folder().glob("programs/*"))) == count == 1, "found on disk"
    assert "first_scope" not in foreign and "test_kernel_names" not in foreign and "%stitch_0_reduce_max" in foreign


def test_results_are_the_same_under_other_names() -> None:
    def other(x: Any) -> Any:
        return jax.nn.softmax(jnp.tanh(jax.nn.softmax(x))) * 13

    other.__name__ = other.__qualname__ = "first"
    expected = stitch_jit(first, mode="now")(X)
    jax.clear_caches()
    assert bool((stitch_jit(other, mode="now")(X) == expected).all())
