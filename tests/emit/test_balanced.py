"""Braces are where they are seen: each macro of the runtime, each header and each kernel's text is balanced by itself,
and a kernel's lines are indented as its braces say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.emit.cpp import kernel as cpp_kernel
from jax_stitch.emit.source import without_comments
from tests.emit import test_cuda_semantics
from tests.fusion import forced
from tests.kernel import programs
from tests.schedule import test_runs

HEADERS = sorted(RUNTIME.rglob("*.h"))
OPENS = {"(": ")", "[": "]", "{": "}"}
_LEFT_OUT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)]*\))?(.*)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def code(text: str) -> str:
    """C++ with continued lines as one, and without comments and what is in quotes."""
    return _LEFT_OUT.sub(" ", text.replace("\\\n", " "))


def macros(text: str) -> Iterator[tuple[str, str]]:
    """The name of each macro, and what takes its place."""
    return ((found[1], found[2]) for found in _DEFINE.finditer(code(text)))


def unbalanced(text: str) -> str:
    """The first bracket of ``text`` that nothing closes, or that closes nothing; empty where there is none."""
    awaited: list[str] = []
    for at, character in enumerate(text):
        if character in OPENS:
            awaited.append(OPENS[character])
        elif character in OPENS.values() and (not awaited or awaited.pop() != character):
            return text[: at + 1][-60:]
    return f"no {awaited[-1]}" if awaited else ""


def wrongly_indented(text: str) -> list[str]:
    """Lines that do not stand as deep as the braces around them say: behind a brace that is not seen, or before one."""
    found: list[str] = []
    depth = 0
    for line in code(text).split("\n"):
        stripped = line.strip()
        closed = len(stripped) - len(stripped.lstrip("}"))
        expected = 2 * (depth - closed)
        if stripped and not stripped.startswith("#") and len(line) - len(line.lstrip()) != expected:
            found.append(line)
        depth += stripped.count("{") - stripped.count("}")
    return found


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("f(a[0]) { g(); }", False),
        ("for (;;) {", True),
        ("}, [&]() {", True),
        ("}}", True),
        ("(]", True),
        ("if (x) ", False),
    ],
)
def test_what_is_unbalanced(text: str, wrong: bool) -> None:
    """As many of each kind are not enough: ``}, [&]() {`` ends one body and begins another."""
    assert bool(unbalanced(text)) == wrong


def test_all_of_a_macro_is_read() -> None:
    """Its further lines, and nothing of a comment or of what is in quotes."""
    text = "#define A(x) { \\\n  f(')', \"{\"); /* { */ \\\n} // }\n#define B\n  # define C ("
    assert [(name, bool(unbalanced(body))) for name, body in macros(text)] == [("A", False), ("B", False), ("C", True)]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: str(header.relative_to(RUNTIME)))
def test_macros_and_headers(header: Path) -> None:
    """A macro that opens what another has to close: nobody sees in a kernel's text where its loops end."""
    text = header.read_text()
    assert {name: wrong for name, body in macros(text) if (wrong := unbalanced(body))} == {}
    assert unbalanced(_DIRECTIVE.sub("", code(text))) == ""


def test_headers_are_found() -> None:
    names = [name for header in HEADERS for name, _ in macros(header.read_text())]
    assert len(HEADERS) > 20 and len(names) > 100 and "ST_EACH_PLACE" in names


def texts_of(name: str, device: str) -> list[str]:
    return [cpp_kernel.text(k) for k in programs.kernels(name, device)]


def texts_made(function: Callable[..., Any], shape: Any, device: str) -> list[str]:
    made = forced.stitched(forced.hlo_of(function, shape), forced.device(device))
    return [kernel.source.text for kernel in made.kernels]


def texts_of_clusters(cluster: int, device: str) -> list[str]:
    """Only the H200 has clusters."""
    made = programs.cluster_kernels("layer_norm_gradient", cluster) if device == "h200" else ()
    return [cpp_kernel.text(k) for k in made]


def f32(*dims: int) -> Any:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def both(x: Any) -> tuple[Any, ...]:
    """Rows that are reduced in one part, and others in another: two parts of one launch."""
    return jnp.tanh(x[:, :7]), x.sum(0), x.max(1)


TEXTS: dict[str, Callable[[str], list[str]]] = {
    **{name: partial(texts_of, name) for name in (*programs.STRAIGHT, *programs.TEAMS, "cart_pole", "lorenz_adaptive")},
    "long rows": partial(texts_made, lambda x: x.sum(1), f32(4, 1_000_000)),
    "long columns": partial(texts_made, lambda x: x.sum(0), f32(100_000, 8)),
    "a whole array": partial(texts_made, lambda x: (x - x.mean()) / x.std(), f32(2048, 1024)),
    "last block alone": partial(texts_made, lambda x: jnp.log(jnp.exp(x).sum(1)).mean(), f32(3000, 130)),
    "phases": partial(texts_made, test_cuda_semantics.across_rows, f32(3000, 130)),
    "packed": partial(texts_made, both, f32(300, 33)),
    "stretches": partial(texts_made, test_runs.rotated, f32(9, 256)),
    "joined stretches": partial(texts_made, test_runs.joined, f32(3, 9000)),
    "runs outside": partial(texts_made, test_runs.grouped, f32(3, 49 * 64)),
    "next places": partial(texts_made, test_runs.first, f32(8192, 1024)),
    **{f"clusters of {n}": partial(texts_of_clusters, n) for n in (2, 4)},
}


@pytest.mark.parametrize("device", programs.DEVICES)
@pytest.mark.parametrize("name", TEXTS)
def test_kernels(name: str, device: str) -> None:
    """As they are printed, before a compiler replaces macros: a reader sees where each loop begins and ends."""
    texts = TEXTS[name](device)
    assert texts or device == "cpu"
    for text in texts:
        assert unbalanced(code(text)) == ""
        assert wrongly_indented(without_comments(text)) == []
