"""Threads, forked processes, and programs that leave their process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.jit_like.processes import run

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.xdist_group("jit_like_processes"),
]

CASES = {
    # Imported only: then a child is a process like any other.
    "a fork before jax is used": """
        def work():
            with warnings.catch_warnings():
                warnings.simplefilter("error", StitchWarning)
                check(stitch_jit(softmax))

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(50)
        assert process.exitcode == 0, process.exitcode
        check(stitch_jit(softmax))
    """,
    "a child calls what its parent compiled": """
        stitched = stitch_jit(softmax)
        check(stitched)
        in_child(lambda: check(stitched))
        check(stitched)
    """,
    # The threads that helped the parent with its blocks are not there.
    "a child calls a kernel of many blocks": """
        stitched, x = stitch_jit(softmax), jnp.ones((1024, 256))
        stitched(x).block_until_ready()
        in_child(lambda: np.testing.assert_allclose(stitched(x), 1 / 256, rtol=1e-5))
    """,
    # XLA would wait for threads of the parent: ``jax.jit`` hangs without a word.
    "a child that has to compile is told why that may not end": """
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
    """,
    "a serialized executable": """
        from jax.experimental import serialize_executable
        import pickle
        compiled = stitch_jit(softmax).lower(np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)).compile()
        packed = serialize_executable.serialize(compiled)
        check(serialize_executable.deserialize_and_load(*packed))
        pickle.dump(packed, open(os.environ["FOLDER"] + "/executable", "wb"))
    """,
    "an exported function": """
        from jax import export
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stitched = stitch_jit(softmax)
            exported = export.export(stitched, platforms=["cpu", "cuda"])(jax.ShapeDtypeStruct((3, 4), jnp.float32))
            symbolic = export.export(stitched)(jax.ShapeDtypeStruct(export.symbolic_shape("n, 4"), jnp.float32))
        (message,) = [str(w.message) for w in caught if issubclass(w.category, StitchWarning)]
        assert "exported" in message, message
        check(exported.call), check(symbolic.call), check(stitched)
        open(os.environ["FOLDER"] + "/exported", "wb").write(exported.serialize())
    """,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("leaving")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, str]:
    """What went wrong in each case. All in one process: to start one takes longer."""
    program = "import json, traceback\noutcomes = {}\n"
    for n, (name, body) in enumerate(CASES.items()):
        program += f"def case_{n}():\n{indent(dedent(body), '    ')}\n"
        program += f"try:\n    case_{n}()\nexcept BaseException:\n    outcomes[{name!r}] = traceback.format_exc()\n"
        program += f"else:\n    outcomes[{name!r}] = ''\n"
    found: dict[str, str] = json.loads(run(program + "print(json.dumps(outcomes))", 60, FOLDER=str(folder)))
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("case", CASES)
def test_from_one_process(case: str, outcomes: dict[str, str]) -> None:
    assert not outcomes[case], outcomes[case]


def test_a_serialized_executable_elsewhere(outcomes: dict[str, str], folder: Path) -> None:
    """It runs wherever its kernels are loaded, which lowering the function does; elsewhere it says so."""
    assert "a serialized executable" in outcomes
    run(
        """
        from jax.experimental import serialize_executable
        import pickle
        x, packed = np.ones((3, 4), np.float32), pickle.load(open(os.environ["FOLDER"] + "/executable", "rb"))
        stitch_jit(lambda x: softmax(x * 2))(x)  # another kernel
        loaded = serialize_executable.deserialize_and_load(*packed)
        try:
            loaded(x)
        except jax.errors.JaxRuntimeError as error:
            assert "is not loaded in this process" in str(error) and "stitch_0" in str(error), error
        else:
            raise AssertionError("it ran without its kernel")
        stitched = stitch_jit(softmax)
        stitched.lower(x)
        check(serialize_executable.deserialize_and_load(*packed))
        """,
        FOLDER=str(folder),
    )


def test_an_exported_function_runs_where_this_package_is_not(outcomes: dict[str, str], folder: Path) -> None:
    """``jax.export`` takes the function as it is: a file must not depend on kernels in this process's memory."""
    assert "an exported function" in outcomes
    text = f"""
import jax, numpy as np
from jax import export
exported = export.deserialize(bytearray(open({str(folder / "exported")!r}, "rb").read()))
np.testing.assert_allclose(exported.call(np.zeros((3, 4), np.float32)), 0.25)
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
