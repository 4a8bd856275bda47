"""What ``capture`` returns: the parameters one by one, for all that JAX functions take, also while JAX is tracing."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices
from jax_stitch.frontend.capture import Capture, CaptureError, capture
from tests.capture.arguments import CPU, on_both, struct

HLO_NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int32": "s32", "int64": "s64"}


HLO_NAMES |= {"int8": "s8", "uint32": "u32", "bool": "pred", "complex64": "c64", "float8_e4m3fn": "f8e4m3fn"}


def check_boundary(captured: Capture) -> hlo_parser.Module:
    """The entry's parameters and results are those that the capture says."""
    module = hlo_parser.parse(captured.text)
    parameters = [(p.shape.dtype, p.shape.dims) for p in module.entry.parameters]
    assert parameters == [(HLO_NAMES[str(p.dtype)], p.shape) for p in captured.parameters]
    root = module.entry.root.shape
    results = root.elements if isinstance(root, hlo_parser.TupleShape) else (root,)
    assert [(r.dtype, r.dims) for r in results] == [(HLO_NAMES[str(r.dtype)], r.shape) for r in captured.results]
    assert [p.parameter_number for p in module.entry.parameters] == list(range(len(captured.parameters)))
    return module


BIG = np.arange(3000, dtype=np.float32)


SMALL = np.array([3, 1, 4, 1, 5], np.float32)


KEY = jax.random.key(0)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "unused": (lambda a, b, c: b * 2, (struct(3), struct(5), struct(7))),
    "nothing": (lambda: None, ()),
    "constant result": (lambda: jnp.ones(3), ()),
    "forwarded": (lambda a, b: (b, a, b, a + 1), (struct(3), struct(5))),
    "one result in a tuple": (lambda a: (a + 1,), (struct(3),)),
    "pytree": (lambda t: {"z": t["b"][0], "a": t["a"]}, ({"b": [struct(3), None, struct(2)], "a": struct(4)},)),
    "scalars": (lambda a, b, c: a * b + c, (2, 3.0, True)),
    "key": (lambda a, key: (a + jax.random.normal(key, a.shape), jax.random.split(key)), (struct(8), KEY)),
    "keys, another generator": (
        lambda keys: jax.vmap(jax.random.bits)(keys),
        (jax.ShapeDtypeStruct((4,), jax.random.key(0, impl="rbg").dtype),),
    ),
    "closed over": (lambda a: a * BIG + SMALL.sum(), (struct(3000),)),
    "closed over, small": (lambda a: a * SMALL, (struct(5),)),
    "closed over key": (lambda a: a + jax.random.normal(KEY, a.shape), (struct(5),)),
    "closed over in a scan": (lambda a: jax.lax.scan(lambda c, _: (c * BIG, c), a, None, 3), (struct(3000),)),
    "types": (
        lambda *a: a[::-1],
        tuple(
            struct(i + 1, dtype=t)
            for i, t in enumerate([np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.complex64])
        ),
    ),
    "float64 without x64": (lambda a: a + 1, (struct(3, dtype=np.float64),)),
    "empty": (lambda a, b: (a, b.sum()), (struct(0, 3), struct(4, 0))),
    "matmul": (lambda a, b: a @ b, (struct(64, 32), struct(32, 16))),
    "partial": (functools.partial(jnp.add, 1.0), (struct(3),)),
}


@on_both
@pytest.mark.parametrize("case", FUNCTIONS)
def test_parameters_and_results_match_the_text(case: str, device: devices.Device) -> None:
    fun, args = FUNCTIONS[case]
    captured = capture(fun, args, device)
    assert captured.unsupported is None
    check_boundary(captured)
    leaves = len(jax.tree.leaves(args))
    assert len(captured.constants) + leaves == len(captured.parameters) and len(captured.in_avals) == leaves
    for constant, parameter in zip(captured.constants, captured.parameters, strict=False):
        assert (constant.shape, constant.dtype) == (parameter.shape, parameter.dtype)


@pytest.mark.parametrize("case", FUNCTIONS)
def test_running_the_captured_program_gives_what_jit_gives(case: str) -> None:
    """The order of constants, arguments and results, and the way in and out, by values."""
    fun, args = FUNCTIONS[case]
    random = np.random.default_rng(0)

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(7, impl="rbg"), leaf.shape)
        return jax.device_put(random.uniform(1, 9, leaf.shape).astype(leaf.dtype))

    args = jax.tree.map(value, args)
    captured = capture(fun, args, CPU)
    assert captured._program is not None
    results = captured._program._lowered.compile()(*captured.flatten(args)[len(captured._program.constants) :])
    actual, expected = captured.unflatten(results), jax.jit(fun)(*args)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.dtype, a.shape, jax.typeof(a).weak_type) == (e.dtype, e.shape, jax.typeof(e).weak_type)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, e = jax.random.key_data(a), jax.random.key_data(e)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(e))


def test_keyword_arguments_and_a_wrong_pytree() -> None:
    captured = capture(lambda a, *, scale: a * scale["s"], (struct(3),), CPU, kwargs={"scale": {"s": struct(1)}})
    check_boundary(captured)
    assert [a.shape for a in captured.flatten((np.ones(3),), {"scale": {"s": np.ones(1)}})] == [(3,), (1,)]
    with pytest.raises(ValueError, match="captured for arguments of the structure"):
        captured.flatten((np.ones(3),), {"scale": np.ones(1)})


def test_x64() -> None:
    with jax.enable_x64(True):
        captured = capture(lambda a, i: (a * 2, i + 1), (np.zeros(3), 7), CPU)
        check_boundary(captured)
        assert [str(p.dtype) for p in captured.parameters] == ["float64", "int64"]
    assert [str(p.dtype) for p in capture(lambda a: a * 2, (np.zeros(3),), CPU).parameters] == ["float32"]


def test_float0_passes_both_ways() -> None:
    zero = np.zeros((3,), jax.dtypes.float0)
    captured = capture(lambda a, z: (a, z), (struct(2), zero), CPU)
    assert captured.flatten((np.ones(2), zero))[1].dtype == np.bool_
    assert captured.unflatten([np.ones(2, np.float32), np.zeros(3, np.bool_)])[1].dtype == jax.dtypes.float0


def test_large_constants_are_arguments_and_small_ones_are_printed_whole() -> None:
    captured = capture(lambda a: a * BIG, (struct(3000),), CPU)
    (constant,) = captured.constants
    np.testing.assert_array_equal(constant, BIG)
    table = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    text = capture(lambda a: a * table, (struct(1000),), CPU).text
    assert "{...}" not in text
    literals = [
        i.literal.to_numpy()
        for c in hlo_parser.parse(text).computations
        for i in c.instructions
        if i.literal is not None and i.shape.dims == (1000,)
    ]
    assert len(literals) == 1
    np.testing.assert_array_equal(literals[0], table)


def test_constants_that_jax_hoists_are_leading_arguments() -> None:
    """With jax_use_simplified_jaxpr_constants, JAX makes arguments of constants: they must not shift the others."""
    code = """if True:
        import jax, numpy as np, jax.numpy as jnp, hlo_parser
        from jax_stitch import devices, graph
        from jax_stitch.frontend.capture import capture
        table = jnp.arange(40.) * 1.5
        big = jnp.arange(3000.)
        def f(a, b):
            return jax.lax.scan(lambda c, _: (c * table, None), a, None, 3)[0], b + big
        args = (jnp.ones(40), jnp.ones(3000))
        captured = capture(f, args, devices.get("cpu"))
        module = hlo_parser.parse(captured.text)
        assert [p.shape.dims for p in module.entry.parameters] == [p.shape for p in captured.parameters]
        flat = captured.flatten(args)
        assert [a.shape for a in flat] == [p.shape for p in captured.parameters], captured.parameters
        hoisted = len(captured._program.constants)
        assert hoisted > 0
        out = captured.unflatten(captured._program._lowered.compile()(*flat[hoisted:]))
        for a, e in zip(out, jax.jit(f)(*args)):
            np.testing.assert_array_equal(a, e)
    """
    environment = os.environ | {
        "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def through_capture(fun: Callable[..., Any], inside: list[Capture] | None = None) -> Callable[..., Any]:
    """A stand-in for the stitched function: captures while being traced, then returns what the function does."""

    def stitched(*args: Any) -> Any:
        captured = capture(fun, args, CPU)
        check_boundary(captured)
        if inside is not None:
            inside.append(captured)
        arrays = captured.flatten(args)
        assert [(a.shape, a.dtype) for a in arrays] == [(p.shape, p.dtype) for p in captured.parameters]
        return fun(*args)

    return stitched


def test_while_being_traced() -> None:
    x = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)

    def f(a: jax.Array) -> jax.Array:
        return jnp.tanh(a) * 2

    with jax.checking_leaks():
        seen: list[Capture] = []
        g = through_capture(f, seen)
        np.testing.assert_array_equal(jax.jit(g)(x), jax.jit(f)(x))
        np.testing.assert_array_equal(jax.jit(jax.vmap(g))(x), jax.jit(f)(x))
        jax.vmap(g)(x)
        jax.lax.scan(lambda c, row: (c + g(row), g(row)), x[0], x)
        jax.lax.cond(True, g, f, x)
        jax.eval_shape(g, x)
        jax.grad(lambda a: g(a).sum())(x)
        assert {c.parameters[0].shape for c in seen} == {(3, 4), (4,)}


def test_a_closed_over_tracer_is_a_constant_of_the_capture() -> None:
    seen: list[Capture] = []

    @jax.jit
    def outer(scale: jax.Array, key: jax.Array, a: jax.Array) -> jax.Array:
        return through_capture(lambda b: b * scale + jax.random.normal(key, b.shape), seen)(a)

    outer(jnp.ones(7), jax.random.key(0), jnp.ones((5, 7)))
    (captured,) = seen
    assert [p.shape for p in captured.parameters] == [(7,), (2,), (5, 7)]
    assert all(isinstance(c, jax.core.Tracer) for c in captured.constants)


def test_a_concrete_constant_stays_concrete_under_a_trace() -> None:
    seen: list[Capture] = []
    keys = jax.random.split(jax.random.key(0), 600)  # More than is embedded.
    jax.jit(through_capture(lambda a: a + jax.vmap(jax.random.uniform)(keys), seen))(jnp.ones(600))
    assert not any(isinstance(c, jax.core.Tracer) for c in seen[0].constants)
    np.testing.assert_array_equal(seen[0].constants[0], jax.random.key_data(keys))


def test_a_failing_function_raises_its_own_error() -> None:
    def f(a: jax.Array) -> jax.Array:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        capture(f, (struct(3),), CPU)


def _mutating(a: jax.Array) -> jax.Array:
    held = jax.new_ref(a)
    held[...] = held[...] * 2
    return held[...]


def _calling_back(a: jax.Array) -> jax.Array:
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(a.shape, a.dtype), a, vmap_method="sequential")


def test_what_has_to_be_left_to_jit() -> None:
    captured = capture(_mutating, (struct(3),), CPU)
    assert captured.unsupported is not None and "side effects" in captured.unsupported
    assert captured.text == ""
    with pytest.raises(CaptureError, match="not compiled"):
        _ = captured.default_text


def test_arrays_that_are_all_braces_are_left_to_jit() -> None:
    """XLA writes a pair of braces for each empty row: planning read a gigabyte of them."""
    for fun, x in (
        (lambda a: jnp.roll(a, 7), struct(65, 2049, 2049, 0)),
        (lambda a: (a, jnp.zeros((3000, 3000, 0))), struct(3)),
    ):
        captured = capture(fun, (x,), CPU)
        assert captured.unsupported is not None and "braces" in captured.unsupported
    assert capture(lambda a: jnp.roll(a, 7), (struct(65, 2049, 0),), CPU).unsupported is None


@pytest.mark.parametrize(
    ("fun", "calls", "effects"),
    [
        (_calling_back, 1, 0),
        (lambda a: _calling_back(_calling_back(a)), 2, 0),
        (lambda a: jax.lax.scan(lambda c, _: (_calling_back(c), None), a, None, 2)[0], 1, 0),
        (jax.jit(lambda a: jax.lax.cond(a[0] > 0, _calling_back, lambda b: b, a)), 1, 0),
        (lambda a: (jax.debug.print("{}", a.sum()), a)[1], 1, 1),
        (lambda a: (jax.debug.print("{}", a.sum(), ordered=True), jax.debug.callback(lambda: None), a)[2], 2, 2),
    ],
)
def test_python_functions_that_it_calls(fun: Callable[..., Any], calls: int, effects: int) -> None:
    """A program whose calls have numbers that no function belongs to."""
    captured = capture(fun, (struct(3),), CPU)
    assert captured.unsupported is None
    assert len(captured.callbacks) == calls and len(captured.effects) == effects
    numbers = {int(n) for n in re.findall(r"index = (\d+)", captured.text)}
    assert numbers == set(range(calls))
    assert [p.shape for p in captured.parameters] == [(3,)]


def test_communication_along_a_mapped_axis_is_left_to_jit() -> None:
    seen: list[Capture] = []

    def f(a: jax.Array) -> jax.Array:
        seen.append(capture(lambda b: jax.lax.psum(b, "i"), (a,), CPU))
        return a

    jax.vmap(f, axis_name="i")(jnp.ones((4, 3)))
    assert seen[0].unsupported is not None and "axis" in seen[0].unsupported


def test_several_devices_are_left_to_jit() -> None:
    code = """if True:
        import jax, numpy as np, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec as P
        from jax_stitch import devices, graph
        from jax_stitch.frontend.capture import capture
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        explicit = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
        array = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("x")))
        cpu = devices.get("cpu")
        print(capture(lambda a: a + 1, (array,), cpu).unsupported)
        spread = jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        print(capture(spread, (jax.ShapeDtypeStruct((8,), np.float32),), cpu).unsupported)
        pinned = lambda a: jax.lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P("x")))
        print(capture(pinned, (jax.ShapeDtypeStruct((8,), np.float32),), cpu).unsupported)
        placed = jax.device_put(jnp.ones(8), NamedSharding(explicit, P("x")))
        placed_only = jax.shard_map(lambda a: a + 1, mesh=explicit, in_specs=P("x"), out_specs=P("x"))
        print(capture(placed_only, (placed,), cpu).unsupported)
        print(capture(lambda a: a + 1, (jnp.ones(8),), cpu).unsupported)
    """
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all("several devices" in line for line in lines[:4]) and lines[4] == "None", lines
