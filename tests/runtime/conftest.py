"""Elementwise C++ functions over arrays, compiled for the host from expressions on scalars."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS

Function = Callable[..., np.ndarray]
Expression = tuple[str, Sequence[str], str]
"""C++ on scalars a, b, c; their C++ types; the result's."""

DTYPES = {
    "bool": np.dtype(bool),
    "st::f16": np.dtype(np.float16),
    "st::bf16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    **{f"{u}int{n}_t": np.dtype(f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)},
}


def text_of(expressions: Mapping[str, Expression]) -> str:
    """A C++ text with a function ``NAME(inputs..., output, count)`` for each expression."""
    text = '#include "scalar.h"\n'
    for name, (expression, types, result) in expressions.items():
        letters = "abc"[: len(types)]
        parameters = "".join(f"const {t}* p{v}, " for t, v in zip(types, letters, strict=True))
        loads = " ".join(
            f"const {t} {v} = {'st::load(p' + v + '[i])' if t == 'bool' else f'p{v}[i]'};"
            for t, v in zip(types, letters, strict=True)
        )
        text += (
            f'extern "C" void {name}({parameters}{result}* __restrict out, int64_t n) {{\n'
            f'  _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) {{ {loads} out[i] = {expression}; }}\n}}\n'
        )
    return text


def load(expressions: Mapping[str, Expression], folder, flags: Sequence[str] = FLAGS) -> dict[str, Function]:
    path = folder / "functions.so"
    path.write_bytes(
        toolchain.shared_object("functions", text_of(expressions), (*flags, "-Wall", "-Werror", f"-I{RUNTIME}"))
    )
    library = ctypes.CDLL(str(path))

    def wrap(name: str, types: Sequence[str], result: str) -> Function:
        function = getattr(library, name)

        def run(*arrays: np.ndarray) -> np.ndarray:
            arrays = np.broadcast_arrays(*(np.asarray(x, DTYPES[t]) for x, t in zip(arrays, types, strict=True)))
            arrays = [np.ascontiguousarray(x) for x in arrays]
            out = np.empty(arrays[0].shape, DTYPES[result])
            function(*(ctypes.c_void_p(x.ctypes.data) for x in (*arrays, out)), ctypes.c_int64(out.size))
            return out

        return run

    return {name: wrap(name, types, result) for name, (_, types, result) in expressions.items()}


def parameters(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Of the cases of the requesting module that are run: what the others need takes a compiler seconds."""
    own = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    return [item.callspec.params for item in own if isinstance(item, pytest.Function) and hasattr(item, "callspec")]


@pytest.fixture(scope="module")
def compiled(request, tmp_path_factory) -> dict[str, Function]:
    """The functions of the requesting module's ``EXPRESSIONS``; of those ``OF_CASES``, what its ``named`` says of the
    cases' parameters."""
    module = request.module
    wanted = {name for given in parameters(request) for name in module.named(**given)}
    expressions = {n: e for n, e in module.EXPRESSIONS.items() if n not in module.OF_CASES or n in wanted}
    return load(expressions, tmp_path_factory.mktemp("functions"))
