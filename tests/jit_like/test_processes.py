"""Threads, forked processes, and programs that leave their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jit_like.processes import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def test_a_child_calls_what_its_parent_compiled() -> None:
    run("""
        stitched = stitch_jit(softmax)
        check(stitched)
        in_child(lambda: check(stitched))
        check(stitched)
    """)


def test_a_child_calls_a_kernel_of_many_blocks() -> None:
    """The threads that helped the parent with its blocks are not there."""
    run("""
        stitched, x = stitch_jit(softmax), jnp.ones((1024, 256))
        stitched(x).block_until_ready()
        in_child(lambda: np.testing.assert_allclose(stitched(x), 1 / 256, rtol=1e-5))
    """)


def test_a_child_that_has_to_compile_is_told_why_that_may_not_end() -> None:
    """XLA would wait for threads of the parent: ``jax.jit`` hangs without a word."""
    run("""
        check(stitch_jit(softmax))

        def compile_anew():
            stitched = stitch_jit(lambda x: softmax(x) + 1)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                text = stitched.lower(np.ones((3, 4), np.float32)).as_text()
            (warning,) = [w for w in caught if issubclass(w.category, StitchWarning)]
            assert "forked" in str(warning.message) and "spawn" in str(warning.message)
            assert "jax_stitch" not in text

        in_child(compile_anew)
        check(stitch_jit(lambda x: softmax(x)))  # the parent goes on as before
    """)


def test_a_fork_before_jax_is_used() -> None:
    """Imported only: then a child is a process like any other."""
    run("""
        def work():
            with warnings.catch_warnings():
                warnings.simplefilter("error", StitchWarning)
                check(stitch_jit(softmax))

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(50)
        assert process.exitcode == 0, process.exitcode
        check(stitch_jit(softmax))
    """)


SERIALIZED = """
    from jax.experimental import serialize_executable
    import pickle
    path, x = {path!r}, np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    stitched = stitch_jit(softmax)
"""


def test_a_serialized_executable(tmp_path: Path) -> None:
    """It runs wherever its kernels are loaded, which lowering the function does; elsewhere it says so."""
    start = SERIALIZED.format(path=str(tmp_path / "executable"))
    run(f"""{start}
    compiled = stitched.lower(x).compile()
    packed = serialize_executable.serialize(compiled)
    check(serialize_executable.deserialize_and_load(*packed))
    pickle.dump(packed, open(path, "wb"))
    """)
    run(f"""{start}
    stitched.lower(x)
    check(serialize_executable.deserialize_and_load(*pickle.load(open(path, "rb"))))
    """)
    run(f"""{start}
    stitch_jit(lambda x: softmax(x * 2))(x)  # another kernel
    loaded = serialize_executable.deserialize_and_load(*pickle.load(open(path, "rb")))
    try:
        loaded(x)
    except jax.errors.JaxRuntimeError as error:
        assert "is not loaded in this process" in str(error) and "stitch_0" in str(error), error
    else:
        raise AssertionError("it ran without its kernel")
    """)


def test_an_exported_function_runs_where_this_package_is_not(tmp_path: Path) -> None:
    """``jax.export`` takes the function as it is: a file must not depend on kernels in this process's memory."""
    path = tmp_path / "exported"
    printed = run(f"""
        from jax import export
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stitched = stitch_jit(softmax)
            exported = export.export(stitched, platforms=["cpu", "cuda"])(jax.ShapeDtypeStruct((3, 4), jnp.float32))
            symbolic = export.export(stitched)(jax.ShapeDtypeStruct(export.symbolic_shape("n, 4"), jnp.float32))
        assert len([w for w in caught if issubclass(w.category, StitchWarning)]) == 1
        check(exported.call), check(symbolic.call), check(stitched)
        open({str(path)!r}, "wb").write(exported.serialize())
        print(caught[-1].message)
    """)
    assert "exported" in printed
    text = f"""
import jax, numpy as np
from jax import export
exported = export.deserialize(bytearray(open({str(path)!r}, "rb").read()))
np.testing.assert_allclose(exported.call(np.zeros((3, 4), np.float32)), 0.25)
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
