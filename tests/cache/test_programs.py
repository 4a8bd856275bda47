"""Rebuilt programs on disk: what counts as the same function, and what happens where the entry is of no use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import pipeline, stitch_jit
from jax_stitch.backend.compile import host, surroundings, toolchain
from jax_stitch.backend.launch import host as launched
from jax_stitch.jit.programs import identity
from jax_stitch.jit.programs.program import RebuiltProgram
from jax_stitch.util import store
from tests.side_by_side import fallbacks, same

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)


def fresh(number: float = 2.0) -> Callable[[Any], Any]:
    """A new function each time, with the same program for the same number."""

    def fun(x: Any) -> Any:
        e = jnp.exp(x * number - jnp.max(x, -1, keepdims=True))
        return e / jnp.sum(e, -1, keepdims=True)

    return fun


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each function that is planned."""
    seen: list[int] = []
    explore = pipeline.explore
    monkeypatch.setattr(pipeline, "explore", lambda *args: (seen.append(1), explore(*args))[1])
    return seen


def forget_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(host, "_loaded", {})
    monkeypatch.setattr(launched, "_registered", {})


def run(fun: Callable[..., Any], *args: Any) -> None:
    """Calls a function stitched; it must not fall back, and give what ``jax.jit`` gives."""
    with fallbacks() as messages:
        same(stitch_jit(fun)(*args), jax.jit(fun)(*args))
    assert not messages


def test_planned_once(cache: Path, plans: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    run(fresh(), X)
    forget_kernels(monkeypatch)
    run(fresh(), X)
    assert len(plans) == 1


def test_nothing_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(fresh(), X)
    forget_kernels(monkeypatch)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(toolchain, "shared_object", refuse)
    monkeypatch.setattr("jax_stitch.frontend.capture.program.Program.first_text", refuse)
    monkeypatch.setenv("JAX_STITCH_STRICT", "1")
    run(fresh(), X)


def test_the_lines_of_a_function_do_not_count(cache: Path, plans: list[int]) -> None:
    text = "import jax.numpy as jnp\n\n\ndef fun(x):\n    return jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True)\n"
    for above in ("", "\n\n# moved\n\n"):
        space: dict[str, Any] = {}
        exec(compile(above + text, f"file{len(above)}.py", "exec"), space)
        run(space["fun"], X)
    assert len(plans) == 1


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "jax's version": lambda patch: patch.setattr(jax, "__version__", "0.99"),
    "our own sources": lambda patch: patch.setattr(identity, "source", lambda: "changed"),
    "the processor": lambda patch: patch.setattr(toolchain, "processor", lambda: "another"),
    "the compiler": lambda patch: patch.setattr(toolchain, "stamp", lambda: "another"),
    "XLA's flags": lambda patch: patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_max_hlo=1"),
    "the device": lambda patch: patch.setattr(
        surroundings, "facts", lambda device: {"multiprocessors": device.multiprocessors + 1}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_program_depends_on(change: str, cache: Path, plans: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    run(fresh(), X)
    CHANGES[change](monkeypatch)
    run(fresh(), X)
    assert len(plans) == 2


def test_other_functions_have_other_programs(cache: Path, plans: list[int]) -> None:
    run(fresh(), X)
    run(fresh(3.0), X)
    run(fresh(), X[:2])
    run(fresh(), X.astype(jnp.bfloat16))
    assert len(plans) == 4
    with jax.enable_x64(True):
        run(fresh(), X)
    assert len(list((cache / "programs").iterdir())) == 5


def test_arrays_that_a_function_closes_over_are_not_part_of_it(cache: Path, plans: list[int]) -> None:
    for seed in range(2):
        table = jnp.asarray(np.random.default_rng(seed).standard_normal((8, 512)), jnp.float32)
        run(lambda x, table=table: jax.nn.softmax(x + table), jnp.ones(512))
    assert len(plans) == 1


def test_keys_weak_types_and_arguments_nobody_reads(cache: Path, plans: list[int]) -> None:
    def fun(key: Any, x: Any, scale: Any, unused: Any) -> Any:
        return jax.nn.softmax(x + jax.random.normal(key, x.shape)) * scale, key, scale * 2

    for make in (jax.random.key, jax.random.PRNGKey):
        for _ in range(2):
            run(lambda *args: fun(*args), make(1), X, 3.0, X)
    assert len(plans) <= 2


def test_constants_as_arguments(cache: Path) -> None:
    """With this option JAX makes arguments of a program's own constants: such programs are not kept."""
    with jax.enable_x64(False):
        jax.config.update("jax_use_simplified_jaxpr_constants", True)
        try:
            table = np.arange(4096.0, dtype=np.float32)
            run(lambda x: jax.nn.softmax(x + table) * 2, jnp.ones(4096))
            run(lambda x: jax.nn.softmax(x + table) * 2, jnp.ones(4096))
        finally:
            jax.config.update("jax_use_simplified_jaxpr_constants", False)


@pytest.mark.parametrize("kind", ["programs", "kernels"])
@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_entries_of_no_use(
    kind: str, harm: str, cache: Path, plans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(fresh(), X)
    for path in (cache / kind).iterdir():
        if harm == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-7] + b"damage!")
    forget_kernels(monkeypatch)
    run(fresh(), X)
    assert len(plans) == 2
    forget_kernels(monkeypatch)
    run(fresh(), X)
    assert len(plans) == 2, "the entry was made anew"
    damaged = sum(k.damaged for k in store.contents().kinds)
    assert (damaged > 0) == (harm == "damaged")


def test_a_program_is_put_into_another_once(cache: Path) -> None:
    layer = stitch_jit(fresh())

    def network(x: Any) -> Any:
        for _ in range(5):
            x = layer(x)
        return x, jax.lax.fori_loop(0, 3, lambda _, y: layer(y), x)

    lowered = jax.jit(network).lower(X)
    assert lowered.as_text().count("stablehlo.custom_call @jax_stitch_host_kernel") == 1
    with fallbacks() as messages:
        same(jax.jit(network)(X), network(X))
    assert not messages


def test_two_programs_of_one_name_keep_apart(cache: Path) -> None:
    run(lambda x: (stitch_jit(fresh(2.0))(x), stitch_jit(fresh(3.0))(x)), X)


def test_derivatives_and_batches_are_kept_too(cache: Path, plans: list[int]) -> None:
    def total(x: Any) -> Any:
        return (stitch_jit(fresh())(x) ** 2).sum()

    for _ in range(2):
        jax.jit(jax.grad(total))(X)
        jax.jit(jax.vmap(lambda x: stitch_jit(fresh())(x)))(X[None])
    once = len(plans)
    jax.jit(jax.grad(total))(X)
    assert once >= 3 and len(plans) == once


def test_a_function_that_cannot_be_rebuilt_says_so_each_time(cache: Path) -> None:
    for _ in range(2):
        with fallbacks() as messages:

            def fun(x: Any) -> Any:
                held = jax.new_ref(jnp.sort(x))
                return jax.nn.softmax(held[...])

            same(stitch_jit(fun)(X), jax.jit(fun)(X))
        assert len(messages) == 1


def test_entries_are_data(cache: Path) -> None:
    run(fresh(), X)
    (path,) = (cache / "programs").iterdir()
    content = store.read("programs", path.name)
    assert content is not None
    program = RebuiltProgram.from_bytes(content)
    assert program.to_bytes() == content
    assert program.kernels and {id for _, id in program.kernels} <= {p.stem for p in (cache / "kernels").iterdir()}
