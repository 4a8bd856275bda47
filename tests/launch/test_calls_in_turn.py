"""Several kernels in one call: in order, with what they hand to each other in memory that they share."""

from __future__ import annotations

import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.backend.compile import compile_host
from jax_stitch.backend.launch.host_call import Part, attributes, laid_out, lives_of
from jax_stitch.backend.launch.kernel_call import call_in_turn
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType
from jax_stitch.util.values import replace
from tests.launch.conftest import make

N = 1000
F32 = TensorType("f32", (N,))
X = np.linspace(-1, 1, N, dtype=np.float32)


def add(number: float, name: str = "add") -> KernelSource:
    """y = x + number, ten blocks."""
    body = f"""
    for (int64_t i = block * {N // 10}; i < (block + 1) * {N // 10}; ++i)
      ((float*)b[1])[i] = ((const float*)b[0])[i] + {number}f;"""
    return make(body, [F32], [F32], 10, name)


def product() -> KernelSource:
    """z = x * y."""
    body = f"for (int i = 0; i < {N}; ++i) ((float*)b[2])[i] = ((float*)b[0])[i] * ((float*)b[1])[i];"
    return make(body, [F32, F32], [F32], 1, "product")


def part(source: KernelSource, level: int, *places: int, work: int = 0) -> Part:
    return Part(compile_host(source), source, work, level, places)


@pytest.mark.parametrize("work", [0, 1 << 20], ids=["one thread", "two threads"])
def test_each_level_reads_what_the_one_before_wrote(work) -> None:
    """A level that begins before the one before it has ended, or a wrong buffer, gives another sum."""
    one, two, times = add(1.0), add(2.0, "add_two"), product()
    # Buffers: 0 x, 1 result; temporaries a = x + 1, b = x + 2, c = a * b, d = c + 1.
    parts = [
        part(one, 0, 0, -1, work=work),
        part(two, 0, 0, -2, work=work),
        part(times, 1, -1, -2, -3, work=work),
        part(one, 2, -3, -4, work=work),
        part(two, 3, -4, 1, work=work),
    ]
    run = jax.jit(lambda x: call_in_turn(parts, [x], [F32], [F32] * 4)[0])
    for _ in range(20):
        np.testing.assert_allclose(run(X), (X + 1) * (X + 2) + 3, rtol=1e-6)


def test_phases_of_a_kernel_are_levels() -> None:
    """A kernel of two phases in a level of its own would run both at once, or the next kernel before the second."""
    body = """
    float* const first = (float*)b[1];
    float* const last = (float*)b[2];
    if (block < 500) first[block] = ((const float*)b[0])[block] + 1.0f;
    else { float sum = 0; for (int i = 0; i < 500; ++i) sum += first[i]; last[block - 500] = sum; }"""
    kinds = [TensorType("f32", (500,)), TensorType("f32", (N,))]
    two = replace(make(body, [F32], kinds, N, "two"), phases=(500, N))
    parts = [part(two, 0, 0, -1, -2, work=1 << 21), part(add(1.0), 2, -2, 1)]
    assert parts[0].levels == range(2)
    run = jax.jit(lambda x: call_in_turn(parts, [x], [F32], kinds)[0])
    for _ in range(20):
        np.testing.assert_allclose(run(X), np.full(N, (X[:500] + 1).sum() + 1), rtol=1e-5)


def test_scratch_is_apart_from_temporaries() -> None:
    """A kernel that uses its scratch memory must not overwrite what waits for a later one."""
    body = f"""
    float* const scratch = (float*)b[2];
    for (int i = 0; i < {N}; ++i) scratch[i] = -7.0f;
    for (int i = 0; i < {N}; ++i) ((float*)b[1])[i] = ((const float*)b[0])[i] + scratch[i] + 7.0f;"""
    copies = replace(make(body, [F32], [F32], 1, "copies"), scratch=(F32,))
    parts = [part(add(1.0), 0, 0, -1), part(copies, 1, 0, -2), part(product(), 2, -1, -2, 1)]
    found = jax.jit(lambda x: call_in_turn(parts, [x], [F32], [F32, F32])[0])(X)
    np.testing.assert_allclose(found, (X + 1) * X, atol=1e-6)


def test_an_output_over_an_input() -> None:
    """Both kernels write in place; XLA copies the argument, which the caller still has."""
    parts = [part(add(1.0), 0, 0, 1), part(add(2.0, "add_two"), 1, 1, 1)]
    run = jax.jit(lambda x: call_in_turn(parts, [x], [F32], aliases={0: 0})[0])
    x = jnp.asarray(X)
    np.testing.assert_allclose(run(x), X + 3, rtol=1e-6)
    np.testing.assert_array_equal(x, X)


def test_the_same_kernel_many_times() -> None:
    """More pointers than the handler keeps on its stack."""
    parts = [part(add(1.0), k, 0 if k == 0 else -1 - (k - 1) % 2, -1 - k % 2) for k in range(299)]
    parts.append(part(add(1.0), 299, -1 - 298 % 2, 1))
    np.testing.assert_allclose(call_in_turn(parts, [X], [F32], [F32, F32])[0], X + 300, rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_no_two_values_that_live_together_share_memory(seed) -> None:
    draw = random.Random(seed)
    count = draw.randrange(1, 40)
    sizes = [draw.choice((0, 1, 4, 63, 64, 65, 1000)) for _ in range(count)]
    lives = [range(start, start + draw.randrange(1, 6)) for start in (draw.randrange(20) for _ in range(count))]
    memory = laid_out(sizes, lives)
    for a in range(count):
        assert memory.offsets[a] % 64 == 0 and memory.offsets[a] + sizes[a] <= memory.size
        for b in range(a):
            together = max(lives[a].start, lives[b].start) < min(lives[a].stop, lives[b].stop)
            apart = any(memory.offsets[p] + sizes[p] <= memory.offsets[q] for p, q in ((a, b), (b, a)))
            assert not together or apart, (a, b, memory)
    at_once = max(sum(s for s, life in zip(sizes, lives, strict=True) if level in life) for level in range(30))
    assert at_once <= memory.size <= sum(math.ceil(s / 64) * 64 for s in sizes)


def test_memory_is_used_again() -> None:
    """A chain of kernels needs the memory of two values, however long it is."""
    parts = [part(add(1.0), k, 0 if k == 0 else -k, -1 - k) for k in range(50)]
    assert lives_of(parts, 50)[:2] == [range(2), range(1, 3)]
    assert attributes(parts, [F32] * 50, 1, 0, True)[1] <= 2 * (4 * N + 64)
