"""The emitted text: the same each time, C++ to both compilers whatever the HLO's names, and readable."""

from __future__ import annotations

import re
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.backend.compile import NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.emit import KernelSource
from jax_stitch.emit.cpp.names import RESERVED, identifier
from tests.drawn import program
from tests.fusion import forced
from tests.some import some

H200 = forced.device("h200")


def sources(fun, *args, target=H200, seed: int | None = None) -> list[KernelSource]:
    with jax.enable_x64(True):
        built = forced.graph_of(fun, *args)
    return forced.sources(forced.plan_of(built, target, seed), target)


def random_sources(seed: int) -> list[KernelSource]:
    with jax.enable_x64(True):
        made = program(Random(seed), steps=14)
        built = forced.graph_of(made.fun, *made.args)
    return forced.sources(forced.plan_of(built, H200, seed), H200)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_function_gives_the_same_text(seed: int) -> None:
    """The order of a set in the text: every process would compile the kernel anew."""
    assert random_sources(seed) == random_sources(seed)


@pytest.mark.parametrize("seed", range(200, 220))
def test_nvrtc_takes_the_text_that_runs_on_the_host(seed: int) -> None:
    """The random tests run these kernels on the host; here the same kind of text is C++ for a GPU too."""
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    for source in random_sources(seed):
        assert f".entry {source.name}" in compile_ptx(source, "sm_80").ptx


ODD_NAMES = [
    *sorted(RESERVED),
    "NULL",
    "NAN",
    "ST_A",
    "INT_MAX",
    "T",
    "PART",
    "__CUDACC__",
    "_x",
    "9lives",
    "a.b-c",
    "λ",
    "",
]


def test_identifiers_are_valid_and_stay_apart() -> None:
    for name in ODD_NAMES:
        found = identifier(name)
        assert re.fullmatch(r"[A-Za-z]\w*", found, re.ASCII)
        assert found not in RESERVED and not found.isupper() and not found.endswith("_")
    assert identifier("add.5") == "add_5", "names are those of the HLO where they can be"


PARAMETERS = """
    q q0 j run row batch block index shared lane int32_t uint8_t std NULL NAN ST_A T PART Combine_x class_ out0 in0
"""


def test_arguments_named_like_the_runtimes_own_words() -> None:
    """A user's argument named ``q`` beside a loop over ``q``."""

    def body(*arrays):
        total = sum(arrays)
        inner = total.reshape(20, 3, 5).sum(1, keepdims=True) * total.reshape(20, 3, 5)
        return inner.sum(0), jnp.flip(inner, 1)

    names = PARAMETERS.split()
    space: dict[str, object] = {"body": body}
    exec(f"def f({', '.join(names)}): return body({', '.join(names)})", space)
    rng = np.random.default_rng(0)
    args = [rng.integers(0, 3, (20, 15)).astype(np.float32) for _ in names]
    with jax.enable_x64(True):
        text = forced.hlo_of(space["f"], *args)  # type: ignore[arg-type]
        for name in names[:4]:
            assert re.search(rf"\b{name}[.\d]* = ", text), "HLO keeps the argument's name"
        for target in ("cpu", "h200"):
            got = forced.run(forced.stitched(text, forced.device(target)), args)
            for g, w in zip(got, body(*args), strict=True):
                np.testing.assert_array_equal(g, np.asarray(w))


def run(fun, *args, target=H200) -> list[np.ndarray]:
    with jax.enable_x64(True):
        return forced.run(forced.stitched(forced.hlo_of(fun, *args), target), args)


def test_packed_parts_that_differ_in_a_truth_value_are_two() -> None:
    """Parts with equal text share a function; names are left out of the comparison, ``true`` and ``false`` are not."""
    p = np.array([True, False, True])

    def f(a, b):
        return jnp.pad(a, 1, constant_values=True), jnp.pad(b, 1, constant_values=False)

    for got, want in zip(run(f, p, ~p), f(p, ~p), strict=True):
        np.testing.assert_array_equal(got, np.asarray(want))


def test_packed_parts_with_a_table_of_one_name() -> None:
    table = np.array([1, 5, 2, 7], np.float32)

    def f(x, y):
        return x * table, y + table

    x, y = np.ones((3, 4), np.float32), np.ones((6, 4), np.float32)
    for got, want in zip(run(f, x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(got, want)


def test_equal_parts_share_one_function() -> None:
    """An optimizer's hundred tensors of one shape would otherwise be a hundred copies of the same code."""
    (source,) = sources(lambda *xs: [jnp.tanh(x) for x in xs], *[jax.ShapeDtypeStruct((64, 5), jnp.float32)] * 6)
    assert source.text.count("ST_PART") == 1
    assert source.text.count("part_0(block") == 2, "one call for CUDA and one for the host"


@settings(max_examples=some(4, of=12), deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=12))
def test_each_tensor_of_a_pack_is_its_own(kinds: list[int]) -> None:
    """Neighbours of one function, and of another between them: a block, or a pointer, of the tensor beside it."""
    shapes = [((5, 8), np.float32), ((5, 8), np.int32), ((300, 3), np.float32), ((1,), np.float32)]
    xs = [np.full(shapes[k][0], n + 1, shapes[k][1]) for n, k in enumerate(kinds)]

    def f(shared, *xs):
        return [jnp.cumsum(x + shared.astype(x.dtype), 0) * (2 + (x.size > 40)) for x in xs], shared + 1

    shared = np.float32(0.5)
    got = run(f, shared, *xs)
    for g, w in zip(got, [*f(shared, *xs)[0], shared + 1], strict=True):
        np.testing.assert_array_equal(g, np.asarray(w))


def test_packed_parts_have_blocks_of_their_own() -> None:
    shapes = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (300, 5000, 17)]
    (source,) = sources(lambda *xs: [jnp.exp(x) for x in xs], *shapes)
    device_code = source.text.split("#ifdef __CUDACC__")[1].split("#else")[0]
    ends = sorted(int(n) for n in re.findall(r"if \(block < (\d+)\)", device_code))
    starts = [0, *(int(n) for n in re.findall(r"\(block - (\d+)", device_code))]
    assert starts == [0, *ends], "each part begins where the one before ends"
    assert source.grid > starts[-1]


def test_a_launch_has_no_more_buffers_than_parameters_fit() -> None:
    small = forced.device("h200", kernel_parameter_bytes=8 * 6)
    shapes = [jax.ShapeDtypeStruct((8, n + 1), jnp.float32) for n in range(9)]
    found = sources(lambda *xs: [jnp.exp(x) for x in xs], *shapes, target=small)
    assert sum(len(s.outputs) for s in found) == 9
    assert all(len(s.inputs) + len(s.outputs) <= 6 for s in found)


def test_the_text_names_the_users_line_and_the_hlos_values() -> None:
    def my_function(weights):
        return jnp.tanh(weights) * weights.sum(1, keepdims=True)

    (source,) = sources(my_function, jax.ShapeDtypeStruct((30, 40), jnp.float32))
    assert "test_text.py:" in source.text
    assert "weights" in source.text and "tanh" in source.text
