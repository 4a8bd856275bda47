"""Kernels called from JAX on the CPU: every block runs once, whatever the size, the threads and the transformation
around."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jax_stitch.backend.compile import compile_host
from jax_stitch.backend.compile.toolchain import compiler
from jax_stitch.backend.launch import Layouts, call, host
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.graph.model import TensorType
from jax_stitch.util.values import replace

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="runs on the CPU")


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 16384, 1_000_003])
@pytest.mark.parametrize("work", [None, 0, 1 << 40])
def test_sizes_and_threads(add_one, size, work):
    source = add_one(size)
    kernel = compile_host(source)
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    (y,) = jax.jit(lambda x: call(kernel, source, x, work=work))(x)
    np.testing.assert_array_equal(np.asarray(y), x + 1)


def test_each_block_runs_once(host_source):
    """Also with few blocks: one per thread, one more than the threads, fewer than the threads."""
    for grid in (1, 2, 3, 5, 8, 9, 100, 10_007):
        counts = TensorType("s32", (grid,))
        source = host_source("__atomic_fetch_add((int*)b[1] + block, 1, 0);", [counts], [counts], grid)
        kernel = compile_host(source)
        f = jax.jit(lambda x, k=kernel, s=source: call(k, s, x, aliases={0: 0}, work=1 << 40), donate_argnums=0)
        for _ in range(5):
            (y,) = f(jnp.zeros(grid, jnp.int32))
            assert (np.asarray(y) == 1).all(), grid


def test_work_is_shared_between_threads(host_source):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    grid = 64
    ids = TensorType("s32", (grid,))
    body = "volatile double x = 0; for (int i = 0; i < 200000; ++i) x = x + i; ((int*)b[0])[block] = gettid();"
    source = host_source(body, [], [ids], grid)
    source = replace(source, text="#include <unistd.h>\n" + source.text)
    kernel = compile_host(source)
    f = jax.jit(lambda: call(kernel, source, work=1 << 40)[0])
    assert any(np.unique(np.asarray(f())).size > 1 for _ in range(20))
    g = jax.jit(lambda: call(kernel, source, work=0)[0])
    assert all(np.unique(np.asarray(g())).size == 1 for _ in range(3))


@pytest.mark.parametrize("dtype", ["f32", "pred", "u8", "bf16", "s64"])
def test_what_takes_long_returns_at_once(host_source, dtype):
    """As under ``jax.jit``: a thread of XLA's runs it, not the caller's. What is short is done before that is awake.

    Where users forbid promotion, what a kernel is weighed with must not compare a truth with a number.
    """
    thread, given = TensorType("s32", (1,)), TensorType(dtype, (2, 3))
    source = host_source("((int*)b[1])[0] = gettid();", [given], [thread], 1)
    source = replace(source, text="#include <unistd.h>\n" + source.text)
    kernel = compile_host(source)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        x = jnp.asarray(np.zeros((3, 2)), numpy_dtype(given))
        for layouts in (None, Layouts(((0, 1),), (None,))):

            def run(x, work, layouts=layouts):
                return call(kernel, source, x.T, work=work, layouts=layouts)[0]

            run = jax.jit(run, static_argnums=1)
            assert run(x, 1 << 20)[0] == threading.get_native_id()
            assert run(x, 1 << 30)[0] != threading.get_native_id()


def test_what_takes_long_on_no_input(host_source):
    number = TensorType("s32", (1,))
    source = host_source("((int*)b[0])[0] = 7;", [], [number], 1)
    assert jax.jit(lambda: call(compile_host(source), source, work=1 << 30)[0])() == 7


def test_hundreds_of_buffers(host_source):
    """AdamW over 84 tensors has 588."""
    n, tensor = 300, TensorType("f32", (3,))
    body = f"for (int k = 0; k < {n}; ++k) for (int i = 0; i < 3; ++i) ((float*)b[{n} + k])[i] = ((float*)b[k])[i] + k;"
    source = host_source(body, [tensor] * n, [tensor] * n, 1)
    kernel = compile_host(source)
    inputs = [np.full(3, 1000.0 * k, np.float32) for k in range(n)]
    outputs = jax.jit(lambda *xs: call(kernel, source, *xs))(*inputs)
    for k, y in enumerate(outputs):
        np.testing.assert_array_equal(np.asarray(y), 1001.0 * k)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("pred", np.bool_),
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("f64", np.float64),
        ("u64", np.uint64),
        ("s8", np.int8),
    ],
)
def test_element_types(host_source, name, dtype):
    """64-bit types too, without jax_enable_x64: optimized HLO has them inside."""
    size = np.dtype(dtype).itemsize
    tensor = TensorType(name, (5,))
    source = host_source(f"__builtin_memcpy(b[1], b[0], {5 * size});", [tensor], [tensor], 1)
    kernel = compile_host(source)
    with jax.enable_x64(True):
        x = jnp.asarray(np.array([0, 1, 1, 0, 1]).astype(dtype))
        (y,) = jax.jit(lambda x: call(kernel, source, x))(x)
    assert y.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_wide_outputs_without_x64(host_source):
    source = host_source("((double*)b[0])[0] = 0.1;", [], [TensorType("f64", (1,))], 1)
    kernel = compile_host(source)
    assert jax.jit(lambda: call(kernel, source)[0])().dtype == np.float64


def test_nothing_to_do(host_source):
    empty = TensorType("f64", (0, 3))
    source = host_source("__builtin_trap();", [empty], [empty], 0)
    kernel = compile_host(source)
    with jax.enable_x64(True):
        x = jnp.zeros((0, 3), jnp.float64)
    (y,) = jax.jit(lambda x: call(kernel, source, x))(x)
    assert (y.shape, y.dtype) == ((0, 3), np.float64)


def test_one_empty_buffer_among_others(host_source):
    source = host_source("((float*)b[1])[0] = 7.0f;", [TensorType("f32", (0,))], [TensorType("f32", (1,))], 1)
    kernel = compile_host(source)
    assert float(jax.jit(lambda x: call(kernel, source, x)[0])(jnp.zeros(0))[0]) == 7


def test_scan_cond_and_loops(add_one):
    source = add_one(1000)
    kernel = compile_host(source)

    def add(x):
        return call(kernel, source, x)[0]

    x = jnp.zeros(1000)
    np.testing.assert_array_equal(jax.lax.scan(lambda c, _: (add(c), c[0]), x, None, length=50)[1], np.arange(50))
    np.testing.assert_array_equal(jax.lax.fori_loop(0, 1000, lambda _, c: add(c), x), 1000)
    np.testing.assert_array_equal(jax.jit(lambda p, x: jax.lax.cond(p, add, lambda x: x, x))(True, x), 1)


def test_side_by_side_in_one_program(add_one):
    """Independent calls, which XLA may run at the same time on the threads they share."""
    source = add_one(300_000)
    kernel = compile_host(source)
    xs = [jnp.full(300_000, float(k)) for k in range(8)]
    for _ in range(10):
        for k, y in enumerate(jax.jit(lambda *xs: [call(kernel, source, x)[0] for x in xs])(*xs)):
            np.testing.assert_array_equal(np.asarray(y), k + 1)


def test_python_threads(add_one):
    source = add_one(200_000)
    kernel = compile_host(source)
    f = jax.jit(lambda x: call(kernel, source, x)[0])
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(30):
            if not (np.asarray(f(jnp.full(200_000, float(k)))) == k + 1).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_aliases_write_in_place(host_source):
    tensor = TensorType("f32", (4,))
    source = host_source("((float*)b[2])[1] = ((float*)b[0])[0];", [tensor, tensor], [tensor], 1)
    kernel = compile_host(source)
    (y,) = jax.jit(lambda u, x: call(kernel, source, u, x, aliases={1: 0}))(jnp.full(4, 9.0), jnp.arange(4.0))
    np.testing.assert_array_equal(y, [0, 9, 2, 3])


def test_layouts_are_of_the_buffers(host_source):
    """The kernel sees bytes in the layout asked for; logical values stay what they are."""
    matrix = TensorType("f32", (2, 3))
    source = host_source("for (int i = 0; i < 6; ++i) ((float*)b[1])[i] = ((float*)b[0])[i];", [matrix], [matrix], 1)
    kernel = compile_host(source)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = jax.jit(lambda x: call(kernel, source, x, layouts=Layouts(((0, 1),), (None,))))(x)
    np.testing.assert_array_equal(np.asarray(y).reshape(-1), x.T.reshape(-1))
    (z,) = jax.jit(lambda x: call(kernel, source, x, layouts=Layouts((None,), ((0, 1),))))(x)
    np.testing.assert_array_equal(np.asarray(z).T.reshape(-1), x.reshape(-1))


def test_eager(add_one):
    source = add_one(100)
    np.testing.assert_array_equal(call(compile_host(source), source, jnp.zeros(100))[0], 1)


def test_wrong_inputs(add_one):
    source = add_one(100)
    kernel = compile_host(source)
    with pytest.raises(ValueError, match=r"Input 0 of the kernel 'add_one' is f32\[100\], not float32\[99\]"):
        call(kernel, source, jnp.zeros(99))
    with pytest.raises(ValueError, match="not int32"):
        call(kernel, source, jnp.zeros(100, jnp.int32))
    with pytest.raises(ValueError, match="takes 1 inputs, not 2"):
        call(kernel, source, jnp.zeros(100), jnp.zeros(100))


def test_no_vmap_and_no_gradient(add_one):
    source = add_one(100)
    kernel = compile_host(source)
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(lambda x: call(kernel, source, x)[0])(jnp.zeros((2, 100)))
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: call(kernel, source, x)[0].sum())(jnp.zeros(100))


PROGRAM = """
import sys
import jax, numpy as np
sys.path.insert(0, "tests/launch")
from conftest import make
from jax_stitch.backend.compile import compile_host
from jax_stitch.backend.compile.toolchain import compiler
from jax_stitch.graph.model import TensorType
from jax_stitch.backend.launch import call
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
junk = np.ones(int(sys.argv[1]))  # so that the addresses differ
t = TensorType("f32", (4,))
s = make("for (int i = 0; i < 4; ++i) ((float*)b[1])[i] = ((float*)b[0])[i] + 3.0f;", [t], [t], 1)
k = compile_host(s)
print(jax.jit(lambda x: call(k, s, x)[0])(np.zeros(4, np.float32)).tolist(), len(hits))
"""


def test_persistent_compilation_cache(tmp_path):
    """A program from JAX's own disk cache, in another process, must call this process's kernel, not an address of
    the last's."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}

    def run(junk: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(junk)],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip().rsplit(" ", 1)

    first, second = run(10), run(1_000_000)
    assert first[0] == second[0] == "[3.0, 3.0, 3.0, 3.0]"
    assert (int(first[1]), int(second[1]) > 0) == (0, True)


def test_each_phase_sees_all_that_the_one_before_wrote(host_source):
    """Blocks that start before the last block of the phase before them has ended."""
    body = """
    int* const first = (int*)b[0];
    int* const second = (int*)b[1];
    if (block < 500) first[block] = 1 + first[block] * 0;
    else { int sum = 0; for (int i = 0; i < 500; ++i) sum += first[i]; second[block - 500] = sum; }"""
    types = [TensorType("s32", (500,)), TensorType("s32", (300,))]
    source = replace(host_source(body, [], types, 300), phases=(500, 300))
    kernel = compile_host(source)
    run = jax.jit(lambda: call(kernel, source, work=1 << 24))
    for _ in range(20):
        assert (np.asarray(run()[1]) == 500).all()


def test_kernel_that_is_not_loaded(add_one):
    """What a program sees that was taken from another process without tracing."""
    source = add_one(4)
    call(compile_host(source), source, jnp.zeros(4))  # registers the handler
    operation = jax.ffi.ffi_call("jax_stitch_host_kernel", jax.ShapeDtypeStruct((4,), np.float32))
    numbers = dict.fromkeys(("inputs", "outputs", "pooled"), np.int64(1))
    work = np.array([1, 2, 0, 1, 0, 1, 0, 0, 1])  # One kernel of two buffers; a level of one step, one block.
    with pytest.raises(Exception, match="'gone' is not loaded in this process"):
        operation(jnp.zeros(4), kernels="no such id", name="gone", work=work, **numbers).block_until_ready()


def test_the_handler_compiles_as_fast_as_a_kernel():
    """Every machine's first stitched function waits for it. XLA's C++ headers made it 100,000 lines: seconds."""
    folder = Path(host.__file__).parent
    include = [f"-I{folder}", f"-I{jax.ffi.include_dir()}"]
    command = [*compiler(), "-std=c++17", "-E", "-P", *include, str(folder / "handler.cc")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(found.stdout.splitlines()) < 10_000
