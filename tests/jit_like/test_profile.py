"""What a profile shows of a stitched function: the user's scopes, and the lines that each kernel computes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from jax_stitch.graph import Node, TensorType
from jax_stitch.graph.labels import label
from tests.light import light

__all__ = ["light"]

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)


def node(source: str, scope: str = "", op: str = "add") -> Node:
    return Node(0, op, TensorType("f32", (4,)), (), source=source, scope=scope)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("/a/b.py:3")], "k(b.py 3)"),
        ([node("b.py:4"), node("b.py:3"), node("b.py:7"), node("b.py:3")], "k(b.py 3-4 7)"),
        ([node("b.py:9"), node("/c/d.py:2")], "k(b.py 9 d.py 2)"),
        ([node("b.py:3", "net/one"), node("b.py:4", "net/two")], "net/k(b.py 3-4)"),
        ([node("b.py:3", "net"), node("b.py:4", "network")], "k(b.py 3-4)"),
        ([node("b.py:3", "net"), node("b.py:4")], "k(b.py 3-4)"),
        ([node("b.py:3", "net"), node(""), node("b.py:1", op="constant")], "net/k(b.py 1 3)"),
        ([node(f"b.py:{2 * n}") for n in range(9)], "k(b.py 0 2 4 6 8 10 ...)"),
        ([node("")], "k"),
    ],
)
def test_labels(nodes: list[Node], expected: str) -> None:
    assert label("k", nodes) == expected


def two_parts(x: Any) -> Any:
    with jax.named_scope("encoder"), jax.named_scope("attention"):
        x = jax.nn.softmax(x)
    x = jnp.fft.fft(x).real
    with jax.named_scope("decoder"):
        return x / jnp.sum(x, -1, keepdims=True) - jnp.max(x, -1, keepdims=True)


def names_of(fun: Any, *args: Any) -> list[str]:
    return re.findall(r'op_name="([^"]*)"', jax.jit(fun).lower(*args).compile().as_text())


def test_kernels_are_named_after_scopes_and_lines() -> None:
    """Scopes of one kernel must not be lost, nor given to another."""
    first = inspect.getsourcelines(two_parts)[1]
    kernels = {name for name in names_of(stitch_jit(two_parts), X) if "stitch_" in name}
    (encoder,) = {name for name in kernels if "encoder/attention" in name}
    assert "/encoder/attention/" in encoder and f"(test_profile.py {first + 2})" in encoder
    (decoder,) = {name for name in kernels if "decoder" in name}
    assert "encoder" not in decoder and f"(test_profile.py {first + 5})" in decoder
    assert all(name.startswith("jit(two_parts)/") for name in kernels)


def test_operations_between_kernels_keep_their_scopes() -> None:
    def fun(x: Any) -> Any:
        with jax.named_scope("ordering"):
            return jnp.sort(jax.nn.softmax(x)) @ x.T

    names = names_of(stitch_jit(fun), X)
    assert any("ordering" in name and "stitch_" not in name for name in names)


def test_derivatives_keep_scopes() -> None:
    """As under ``jax.jit``, where the backward pass is ``transpose(jvp(attention))``."""
    names = names_of(jax.grad(lambda x: jnp.sum(stitch_jit(two_parts)(x) ** 2)), X)
    assert any("jvp(encoder)" in n and "stitch_" in n for n in names)
    assert any("transpose(jvp(encoder)" in n for n in names)


def test_the_profiler_itself_is_used_around_calls() -> None:
    """Annotations are made while the function is traced: they must not stop it from being stitched."""

    @jax.profiler.annotate_function
    def annotated(x: Any) -> Any:
        with jax.profiler.TraceAnnotation("inner"):
            return jax.named_call(jax.nn.softmax, name="mine")(x)

    assert any("mine/stitch_" in name for name in names_of(stitch_jit(annotated), X))
