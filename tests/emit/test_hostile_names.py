"""File names, scopes and the names of functions and parameters come from other people's programs, as in files of
``jax.export``: nothing in them may become C++ or MLIR.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

from jax_stitch import emit, stitch_jit
from jax_stitch.backend.compile import toolchain
from jax_stitch.emit.cpp.lines import comment
from jax_stitch.frontend.replay.rules import mlir_text
from tests.fusion import forced

PLANTED = "int planted = 1;"
LINE_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\\\n", "??/\n", "\\ \n", "*/\n"]
OTHERS = ["\\", "??/", "???/", "*/", "/*", '"', '")";', "\0", "\x1b[2J", "\u202e", "\udc80", "%s", "{", 'R"(']

BODIES = {
    "rows": "jnp.tanh(x - x.mean(-1, keepdims=True)) / x.sum(-1, keepdims=True)",
    "a loop in threads": "jax.lax.fori_loop(0, 9, lambda _, c: jnp.sin(c) * 0.5 + x, x)",
    "a loop in teams": "jax.lax.fori_loop(0, 9, lambda _, c: jnp.tanh(c @ w), x)",
    "a sort": "jnp.sort(x, -1) * 2",
    "a scan": "jnp.cumsum(x, -1) * 2",
}


def planted_function(body: str, word: str) -> Callable[..., Any]:
    """A function of x and w, whose file, scope and own name have ``word`` in them."""
    space: dict[str, Any] = {"jnp": jnp, "jax": jax}
    exec(compile(f"def f(x, w):\n  return {body}\n", f"a{word}{PLANTED}{word}", "exec"), space)

    def named(x: Any, w: Any) -> Any:
        with jax.named_scope(f"scope{word}{PLANTED}"):
            return space["f"](x, w)

    named.__name__ = named.__qualname__ = f"f{word}{PLANTED}"
    return named


def code_of(text: str) -> str:
    """What a C++ compiler takes for code of a text that includes nothing: its own preprocessor is the judge."""
    stripped = re.sub(r'^#include "[\w.]+"$', "", text, flags=re.MULTILINE)
    command = [*toolchain.compiler(), "-std=c++14", "-E", "-P", "-x", "c++", "-"]
    return subprocess.run(command, input=stripped, capture_output=True, check=True, encoding="utf-8").stdout


@pytest.mark.parametrize("word", LINE_ENDS + OTHERS, ids=ascii)
def test_a_comment_holds_whatever_it_is_given(word: str) -> None:
    """Also the line after it stays code. Trigraphs count in C++14, which the flags may become."""
    for text in (f"{word}{PLANTED}{word}", f"x {word} {PLANTED}", word, f"{PLANTED}{word}"):
        line = comment(text)
        assert line.isprintable() and len((line + "\n").splitlines()) == 1
        assert not set(line) & set('\\"') and "??" not in line and "*/" not in line and "/*" not in line
        assert code_of(f"{line}\nint next;\n").split() == ["int", "next;"]


@pytest.mark.parametrize("word", ["\n", "\r", "\\\n", "\u2028", "*/"], ids=ascii)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_no_word_of_a_program_becomes_code(body: str, word: str, target: str) -> None:
    x, w = np.full((64, 64), 0.5, np.float32), np.full((64, 64), 0.01, np.float32)
    device = forced.device(target)
    plan = forced.plan_of(forced.graph_of(planted_function(body, word), x, w), device)
    for source in forced.sources(plan, device):
        assert "planted" in source.text or "a loop of" in source.text, "the words are shown"
        assert "planted" not in source.code, "comments are whole lines"
        assert "planted" not in code_of(source.text)
        assert all(line.isprintable() for line in source.text.split("\n"))


def test_an_exported_model_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an attacker would: a file of ``jax.export``, loaded and called. It made a file when its kernel was loaded."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    made = tmp_path / "made"
    code = f'\n#include <cstdlib>\nstatic int planted = std::system("touch {made}");\n//'
    space: dict[str, Any] = {"jnp": jnp}
    exec(compile(f"def f(x):\n  return {BODIES['rows']}\n", f"model.py{code}", "exec"), space)
    x = np.random.default_rng(0).standard_normal((64, 100), np.float32)
    blob = jax.export.export(jax.jit(space["f"]))(x).serialize()
    model = stitch_jit(jax.export.deserialize(blob).call)
    np.testing.assert_allclose(model(x), space["f"](x), rtol=1e-4, atol=1e-4)
    assert not made.exists(), "code from the file has run"
    assert "planted" in model.plan(x).kernels[0].source


def test_names_that_only_some_encodings_have() -> None:
    """A folder named in Chinese: texts are written in UTF-8, whatever the language of the machine."""
    function = planted_function(BODIES["rows"], "目录")
    x, device = np.ones((8, 20), np.float32), forced.device("cpu")
    for source in forced.sources(forced.plan_of(forced.graph_of(function, x, x), device), device):
        assert "目录" in source.text
        assert "planted" not in code_of(source.text)


def test_only_one_function_writes_comments() -> None:
    """Another place that writes ``//`` before a program's words would not escape them."""
    folder = Path(emit.__file__).parent
    found = {p.name: re.findall(r"""f?["']\s*/[/*].*""", p.read_text()) for p in folder.rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == {"lines.py", "source.py"}
    assert len(found["lines.py"]) == 1 and all("startswith" not in line for line in found["lines.py"])


@pytest.mark.parametrize("text", ["plain", 'a"b', "a\\b", "\n", "\0\x7f", "é漢", '", evil = "', "\\22"])
def test_mlir_reads_the_string_that_was_written(text: str) -> None:
    """JSON's escapes are not MLIR's: a name outside ASCII could not be parsed."""
    with ir.Context():
        attribute = ir.Attribute.parse(mlir_text.string(text))
        assert ir.StringAttr(attribute).value_bytes == text.encode()
