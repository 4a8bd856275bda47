"""What ``jax.jit`` has compiled for the first call is what is planned: XLA is not asked for it twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import hlo_parser
from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import effort
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.compiled import Compiled, executable_of
from jax_stitch.jit.primitive import argument_types, needed_part
from jax_stitch.jit.rebuilt import elsewhere
from jax_stitch.jit.stitching import make as make_module
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from tests.modes.conftest import LONG

X = np.linspace(-1.0, 2.0, 16 * 96, dtype=np.float32).reshape(16, 96)
Y, W = np.flip(X, 0).copy(), np.linspace(0.5, 1.5, 96, dtype=np.float32)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def unlike(x: Any, unused: Any, y: Any) -> Any:
    """Takes arguments of one type, of which each does something else, or nothing."""
    return {"b": softmax(x) - 2 * softmax(y), "a": (softmax(y).max(-1), jnp.arange(3))}


def random(key: Any, x: Any) -> Any:
    return softmax(x + jax.random.normal(key, x.shape)), jax.random.split(key)


def through_others(x: Any, w: Any) -> Any:
    inner = jax.jit(lambda x: softmax(x) * w)
    return jax.lax.scan(lambda c, _: (inner(c) + 1, c.sum()), x, length=3)


def closed_over(x: Any) -> Any:
    return softmax(x * W[:4].sum()) + jnp.asarray([1.0, 2.0]).sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "unlike arguments": (unlike, (X, Y + 1, Y), {}),
    "keys": (random, (jax.random.key(3), X), {}),
    "functions inside": (through_others, (X, W), {}),
    "small constants": (closed_over, (X,), {}),
    "donated": (lambda x, y: (softmax(x) + y, softmax(y)), (X, Y), {"donate_argnums": (0, 1)}),
    "static": (lambda n, x: softmax(x) * n, (3, X), {"static_argnums": 0}),
    "all kept": (unlike, (X, Y + 1, Y), {"keep_unused": True}),
}


def called(fun: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> jax.stages.Traced:
    """The function as ``jax.jit`` has traced, compiled and run it."""
    jitted: Any = jax.jit(fun, **options)
    jitted(*args)
    return cast("jax.stages.Traced", jitted.trace(*args))


def opcodes(text: str) -> Counter[str]:
    """Of the instructions of all computations."""
    module = hlo_parser.parse(text)
    return Counter(i.opcode for computation in module.computations for i in computation.instructions)


@pytest.mark.parametrize("case", [c for c in PROGRAMS if c != "all kept"])
def test_it_is_the_program_that_would_be_captured(case: str) -> None:
    fun, args, options = PROGRAMS[case]
    args = tuple(jnp.array(a) if isinstance(a, np.ndarray) else a for a in args)
    traced = called(fun, args, **options)
    known = executable_of(traced, 0.5)
    needed, _ = needed_part(traced.jaxpr, [True] * len(traced.jaxpr.out_avals))
    donated = options.get("donate_argnums", ())
    own = capture(jaxpr_as_fun(needed), argument_types(needed), devices.get("cpu"), donated=donated)
    assert known is not None
    found = known.for_types(own.parameters, own.results)
    assert found is not None and opcodes(found.text) == opcodes(own.default_text)


def large(x: Any) -> Any:
    return softmax(x + Y * 2)


@pytest.mark.parametrize(
    ("fun", "options"),
    [
        (lambda x: (softmax(x), x), {}),
        (lambda x: [softmax(x)] * 2, {}),
        (softmax, {"compiler_options": {"xla_cpu_enable_fast_math": True}}),
        (lambda x: jax.debug.callback(print, x[0, 0] * 0) or softmax(x), {}),
    ],
    ids=["an argument", "twice the same", "other options", "effects"],
)
def test_another_program_than_would_be_captured_is_not_taken(fun: Any, options: Any) -> None:
    assert executable_of(called(fun, (X,), **options), 0.5) is None


def test_one_that_is_not_compiled_is_not_compiled_for_it() -> None:
    assert executable_of(jax.jit(lambda x: softmax(x) + 1).trace(X), 0.5) is None


def test_another_part_of_the_function_does_not_fit() -> None:
    """Large arrays that a function closes over are arguments of what is captured: nobody wants to print them."""
    known = executable_of(called(large, (X,)), 0.5)
    own = capture(large, (X,), devices.get("cpu"))
    assert known is not None and len(own.constants) == 1 and known.for_types(own.parameters, own.results) is None


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled already of what the child is given."""
    given: list[Any] = []
    request = elsewhere._request

    def noted(captured: Any, *rest: Any) -> Any:
        given.append(captured.compiled)
        return request(captured, *rest)

    monkeypatch.setattr(elsewhere, "_request", noted)
    return given


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", PROGRAMS)
def test_stitched_from_it_results_are_right(case: str, handed: list[Any]) -> None:
    """All arguments, and all results, where they belong: in "unlike arguments" all have one type."""
    fun, args, options = PROGRAMS[case]

    def again(*args: Any) -> Any:
        return fun(*args)

    function = stitch_jit(again, mode="async", **options)

    def call() -> Any:
        return function(*(jnp.array(a) if isinstance(a, np.ndarray) else a for a in args))

    call()
    assert function.wait(LONG)
    static = options.get("static_argnums")
    want = jax.jit(fun, static_argnums=static)(*args) if static is not None else jax.jit(fun)(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(*map(_plain, (a, b)), rtol=1e-5, atol=1e-6), call(), want)
    assert [p.state for p in function.status().programs] == ["stitched"]
    assert (handed[-1] is None) == (case == "all kept")


def _plain(value: Any) -> Any:
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def test_what_xla_took_counts_for_how_long_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child does not see XLA at work, by whose time planning is bounded."""
    allowed: list[float] = []
    monkeypatch.setattr(make_module, "stitched", lambda *arguments: allowed.append(arguments[-1]))
    cpu = devices.get("cpu")
    captured = capture(softmax, (X,), cpu)
    captured = replace(captured, compiled=Compiled(captured.default_text, 7.0))
    with pytest.raises(AttributeError):
        make_module.make(captured, cpu, cpu, PlannerName.BEAM, "", Autotune.OFF, sparing=True)
    assert allowed[0] == pytest.approx(7.0 * effort.planning.get())
