"""What ``stitch_hlo`` gives: arrays in and out, of whatever types, and clear words where that cannot be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from hlo_parser import ELEMENT_TYPES
from jax_stitch import HloFileError, compare, plan_hlo, stitch_hlo
from tests.hlo_files.programs import OPENABLE, ROWS, TUPLES, after, before, normalised, spread

RNG = np.random.default_rng(0)


def test_tuples_are_taken_and_given_leaf_by_leaf() -> None:
    """Catches leaves in another order, lost where nothing reads them, and nested results given nested."""
    function = stitch_hlo(TUPLES, strict=True)
    assert function.program.names == ("p[0]", "p[1][0]", "p[1][1]", "q")
    a, n, q = np.arange(4, dtype=np.float32), np.array([3, 5], np.int32), np.full(4, 10, np.float32)
    for call in (function, function.plain):
        for flag in (True, False):
            twice, chosen, same = call(a, n, np.bool_(flag), q)
            np.testing.assert_array_equal(twice, [6, 10])
            np.testing.assert_array_equal(chosen, a + q if flag else q)
            assert bool(same) is flag


def test_a_root_that_is_an_array_is_given_as_one() -> None:
    x = RNG.random((64, 32), np.float32)
    found = stitch_hlo(ROWS)(x)
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, x / x.sum(1, keepdims=True), rtol=1e-5)


def test_all_that_passes_have_made_is_opened() -> None:
    """Catches results of fusions mixed up, bitcasts that only change shapes, and pairs whose first half is lost."""
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    kept = jnp.asarray(x)
    function = stitch_hlo(OPENABLE, strict=True)
    for call in (function, function.plain):
        squared, flat = call(kept)
        np.testing.assert_allclose(squared, np.exp(x).T ** 2, rtol=1e-5)
        np.testing.assert_array_equal(flat, -x.reshape(-1))
    np.testing.assert_array_equal(kept, x)  # which the program would overwrite


@pytest.mark.parametrize("name", sorted(ELEMENT_TYPES))
def test_constants_of_every_type_keep_their_values(name: str) -> None:
    """Catches constants rounded by a detour through text, or cut to 32 bits."""
    kind = ELEMENT_TYPES[name]
    if kind.bits < 4 or (kind.kind == "float" and kind.bits < 8):
        return  # XLA:CPU has no arrays of these.
    values = np.array([1, 0, 1, 1]) if kind.kind == "pred" or name.endswith("e8m0fnu") else np.array([1, 2, 3, 6])
    values = np.where(values == 0, 1, values) if name.endswith("e8m0fnu") else values
    shape = hlo_parser.ArrayShape(name, (4,))
    literal = hlo_parser.Literal.of(values.astype(kind.numpy), shape)
    constant = hlo_parser.Instruction("c", "constant", shape, literal=literal)
    lines = f"  {constant}\n  x = f32[] parameter(0)\n  ROOT r = ({shape}, f32[]) tuple(c, x)\n"
    text = f"HloModule m\nENTRY e {{\n{lines}}}\n"
    function = stitch_hlo(text)
    for call in (function, function.plain):
        found, _ = call(np.float32(1))
        assert found.dtype == kind.numpy
        assert np.asarray(found).tobytes() == values.astype(kind.numpy).tobytes()


def test_types_of_64_bits_need_no_option() -> None:
    """Catches arguments and results cut to 32 bits where JAX has no wider types by default, also in a plan's counts."""
    with jax.enable_x64(True):
        text = before(lambda x, n: (jnp.cumsum(x * x), n + 2**40), jnp.ones((4, 300), jnp.float64), jnp.int64(1))
        done = after(lambda x, n: (jnp.cumsum(x * x), n + 2**40), jnp.ones((4, 300), jnp.float64), jnp.int64(1))
    x = RNG.standard_normal((4, 300))
    assert not jax.config.jax_enable_x64
    for source in (text, done):
        function = stitch_hlo(source)
        for call in (function, function.plain):
            sums, n = call(x, np.int64(5))
            assert (sums.dtype, n.dtype) == (np.float64, np.int64) and int(n) == 2**40 + 5
            np.testing.assert_allclose(sums, np.cumsum(x * x), rtol=1e-12)
        plan = plan_hlo(source)
        assert plan.launches > 0 and plan.bytes >= x.nbytes


def test_lapack_can_be_called_before_jax_has_done_so() -> None:
    """XLA crashes on its routines until JAX has registered them."""
    matrix = np.eye(6, dtype=np.float32) * 4 + 1
    for text in (before(jnp.linalg.cholesky, matrix), after(jnp.linalg.cholesky, matrix)):
        function = stitch_hlo(text)
        for call in (function, function.plain):
            np.testing.assert_allclose(call(matrix), np.linalg.cholesky(matrix), rtol=1e-5)


def test_keys_and_numbers_are_taken_for_what_they_consist_of() -> None:
    text = before(lambda key, x: jax.random.uniform(key, (8,)) * x, jax.random.key(0), jnp.float32(2))
    expected = jax.random.uniform(jax.random.key(7), (8,)) * 2
    for call in ((function := stitch_hlo(text)), function.plain):
        np.testing.assert_array_equal(call(jax.random.key(7), 2.0), expected)


def test_wrong_arguments_are_named() -> None:
    """Catches messages from inside XLA, and arrays broadcast or cast in silence."""
    function = stitch_hlo(ROWS)
    with pytest.raises(TypeError, match=r"rows takes 1 arrays, not 2: x: float32\[64,32\]"):
        function(jnp.ones((64, 32)), 1.0)
    with pytest.raises(TypeError, match=r"argument 0 \(x\) has to be float32\[64,32\], not float32\[64,33\]"):
        function(jnp.ones((64, 33)))
    with pytest.raises(TypeError, match=r"not int32\[64,32\]"):
        function(jnp.ones((64, 32), jnp.int32))
    with pytest.raises(TypeError, match="not a list"):
        function([1.0])


def test_it_is_part_of_other_functions() -> None:
    """Catches a program of its own that is planned as it is, where it is only a part of what is compiled."""
    x = RNG.random((64, 32), np.float32)
    function = stitch_hlo(after(lambda x: x / x.sum(1, keepdims=True), x))
    found = jax.jit(lambda x: function(jnp.exp(x)) + 1)(x)
    np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(1, keepdims=True) + 1, rtol=1e-5)


def test_float64_is_its_own_reference() -> None:
    """Catches a comparison with XLA's own roundings, by which no other order of the same sum would agree."""
    args = jnp.asarray(RNG.standard_normal((64, 32)), jnp.float32), jnp.linspace(0.5, 2.0, 32)
    for text in (before(normalised, *args), after(normalised, *args)):
        found = compare(stitch_hlo(text).function, *args, seconds=0.01)
        assert found.exact and found.agrees and 0 < found.plain_error < 1e-5


@pytest.mark.slow
def test_what_runs_in_the_background_is_the_same() -> None:
    x = RNG.random((64, 32), np.float32)
    function = stitch_hlo(after(lambda x: x / x.sum(1, keepdims=True), x), mode="async")
    first = function(x)
    assert function.wait(120)
    np.testing.assert_allclose(function(x), first, rtol=1e-6)


def test_a_program_for_several_devices_is_planned_as_one_part() -> None:
    """Catches parts taken for the whole, collectives that XLA drops for one device, and runs of what needs several."""
    plan = plan_hlo(spread(8), "h200")
    assert plan.kernels and any("all-reduce" in k.opcode for k in plan.stitched_traffic.kernels)
    assert plan.bound_bytes == 2 * 64 * 32 * 4
    assert "for each of 8 devices" in plan.notes[0]
    with pytest.raises(HloFileError, match=r"it is for 8 devices at once \(num_partitions\)"):
        stitch_hlo(spread(8))


def test_what_another_backend_has_optimised_is_told() -> None:
    """A CPU's fusions are no news of a GPU; asked to, XLA makes its own."""
    x = jnp.ones((64, 32))
    text = after(lambda x: jax.nn.softmax(x * 2, 0), x)
    own = plan_hlo(text, "h200", optimize=True)
    assert own.hlo != text and "operation_queue_id" in own.hlo and own.notes == ()
    assert plan_hlo(own.hlo, "h200").notes == ()
    assert "another kind of device" in " ".join(plan_hlo(own.hlo, "cpu").notes)
