"""The host compiler: found or clearly missed, and its errors shown where they are."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from jax_stitch.backend.compile import CompilerMissing, KernelCompileError, compile_all, compile_host, toolchain
from jax_stitch.backend.compile.errors import CompilerTrouble
from jax_stitch.backend.compile.host import FLAGS
from jax_stitch.util.values import replace


def test_no_compiler(source, cache, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CompilerMissing, match=r"none of c\+\+, g\+\+, clang\+\+ is on PATH") as raised:
        compile_host(source())
    assert "`" in str(raised.value), "the message holds no command"


def test_the_command_suits_the_machine(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: "/usr/bin/dnf" if name == "dnf" else None)
    with pytest.raises(CompilerMissing, match="sudo dnf install gcc-c"):
        toolchain.compiler()


def test_wrong_cxx(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(CompilerMissing, match=r"\$CXX is 'no-such-compiler -O1'"):
        toolchain.compiler()


def test_cxx_with_options(monkeypatch):
    name = shutil.which("g++") or shutil.which("clang++")
    if name is None:
        pytest.skip("no compiler")
    monkeypatch.setenv("CXX", f"{name} -DUNUSED='a b'")
    assert toolchain.compiler() == (name, "-DUNUSED=a b")


def test_error_shows_the_line(source, cache):
    with pytest.raises(KernelCompileError) as raised:
        compile_host(source(value="undefined_thing"))
    message = str(raised.value)
    assert "'kernel'" in message
    assert "undefined_thing" in raised.value.log
    marked = [line for line in message.splitlines() if line.startswith(">")]
    assert len(marked) == 1 and "st::exp(in[i]) + undefined_thing" in marked[0]


def test_error_in_a_long_log_is_cut():
    error = KernelCompileError("k", "g++", "\n".join(f"kernel.cc:{n}:1: error" for n in range(1, 500)), "text\n" * 500)
    assert "... and 439 more lines" in str(error)
    assert len(str(error).splitlines()) < 80
    assert error.log.count("\n") == 498


def test_compile_all_keeps_order_and_reports(source, cache):
    sources = [source(name=f"kernel{n}", value=f"{n}.0f") for n in range(5)]
    steps: list[tuple[int, int]] = []
    kernels = compile_all(sources, "host", lambda done, total: steps.append((done, total)))
    assert [k.name for k in kernels] == [s.name for s in sources]
    assert steps[-1] == (5, 5) and all(total == 5 for _, total in steps) and steps == sorted(steps)
    assert compile_all([], "host") == ()


def test_compile_all_raises_the_first_failure(source, cache):
    sources = [source(name=f"kernel{n}") for n in range(3)] + [source(name="broken", value="}")]
    with pytest.raises(KernelCompileError, match="'broken'"):
        compile_all(sources, "host")


def test_kernels_are_values(source, cache):
    kernel = compile_host(source())
    assert replace(kernel) == kernel
    assert "CDLL" not in repr(kernel)


def test_a_compilers_own_defect_is_gone_round(source, cache, tmp_path, monkeypatch):
    """GCC that fails on a loop's vectors compiles it without; what is wrong with the text is told as it was."""
    real = toolchain.compiler()
    script = tmp_path / "c++"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *--version*|*{toolchain.WITHOUT_VECTORS[0]}*) exec {" ".join(real)} "$@";; esac
echo "internal compiler error: in extract_insn, at recog.cc:2791" >&2; exit 1
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    compile_host(source())
    with pytest.raises(KernelCompileError, match="nonsense"):
        compile_host(source(value="nonsense"))


@pytest.mark.parametrize("without", [(), toolchain.WITHOUT_VECTORS])
def test_no_vectors_where_they_are_left_out(tmp_path, without):
    """Loops marked ``omp simd`` included, which GCC makes vectors of although told not to vectorise."""
    text = tmp_path / "loop.cc"
    text.write_text(
        """void f(short* a, const short* b) {
  _Pragma("omp simd") for (int i = 0; i < 4096; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
}
"""
    )
    options = [*FLAGS, *without, "-S", "-fopt-info-vec"]
    command = [*toolchain.compiler(), *options, str(text), "-o", str(tmp_path / "loop.s")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip("the compiler does not tell what it made vectors of")
    assert ("vectorized" in run.stderr) is (not without)


@pytest.mark.parametrize(
    ("word", "wide"),
    [("", True), ("for (index step", False), ("for (index step = 0) ST_PRODUCT(float, 8, 8)", True)],
)
def test_vectors_of_all_of_avx512_but_in_loops_without_products(source, cache, monkeypatch, word, wide):
    """Softmax took a fifth longer in half of the width, and what stands between products a third; stencils in a loop
    are faster there.
    """
    given = []
    monkeypatch.setattr(toolchain, "has_avx512", lambda: True)
    monkeypatch.setattr(toolchain, "knows_processor", lambda: True)
    monkeypatch.setattr(toolchain, "shared_object", lambda name, text, options: given.extend(options) or b"")
    plain = source()
    with pytest.raises(CompilerTrouble):
        compile_host(replace(plain, text=f'{plain.text}const char said[] = "{word}";'))
    assert ("-mprefer-vector-width=512" in given) is wide
