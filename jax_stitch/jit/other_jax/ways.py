"""The canary: a small program stitched and run in every way in which JAX calls us, beside ``jax.jit``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify, io_callback

from jax_stitch.api import stitch_jit
from jax_stitch.backend.compile import CompilerMissing, CompilerTrouble, KernelCompileError, NvrtcMissing
from jax_stitch.jit.other_jax.canary import Verdict
from jax_stitch.jit.programs.fallback import warnings_held
from jax_stitch.util.jax_names import jet

_ROWS, _COLUMNS = 8, 256
_OF_THE_MACHINE = (CompilerMissing, CompilerTrouble, KernelCompileError, NvrtcMissing, OSError, MemoryError)
"""Failures that say nothing of JAX. A compiler that refuses a kernel may be broken."""
_WAIT = 120.0
"""Seconds for what is made in the background."""

_Jit = Callable[..., Any]
"""``jax.jit``, or ``stitch_jit``."""


class _Differs(Exception):
    """A result is not ``jax.jit``'s; the message says which."""


def tried() -> Verdict:
    """Return whether each way in which functions are used has the results that it has under ``jax.jit``."""
    with _usual_options():
        for name, way in WAYS:
            try:
                expected = way(jax.jit)
            except Exception:  # This JAX does not do that at all: nothing of ours can make it worse.
                continue
            try:
                with warnings_held():  # Checkify is told that it gets a plain function.
                    ours = {"mode": "now", "strict": name != _CHECKIFY, **_OPTIONS}
                    _compare(way(lambda fun, ours=ours, **others: stitch_jit(fun, **ours | others)), expected)
            except Exception as failure:
                return _verdict_of(name, failure)
    return Verdict("")


def _verdict_of(name: str, failure: BaseException) -> Verdict:
    causes: list[BaseException] = [failure]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    said = next(iter(str(failure).splitlines()), "")
    reason = f"{name} failed when it was tried: {type(failure).__name__}: {said}"
    of_machine = any(isinstance(cause, _OF_THE_MACHINE) or "RESOURCE_EXHAUSTED" in str(cause) for cause in causes)
    return Verdict(reason, lasting=not of_machine)


@contextlib.contextmanager
def _usual_options() -> Iterator[None]:
    """Use JAX as it is before anybody sets options for the whole process: traced, compiled, and without checks."""
    usual: dict[str, Any] = {
        "disable_jit": False,
        "debug_nans": False,
        "debug_infs": False,
        "numpy_rank_promotion": "allow",
        "numpy_dtype_promotion": "standard",
        "transfer_guard": "allow",
        "default_matmul_precision": None,
        "enable_x64": False,
    }
    with contextlib.ExitStack() as entered:
        for name, value in usual.items():
            if hasattr(jax, name):
                entered.enter_context(getattr(jax, name)(value))
        entered.enter_context(jax.default_device(_device()))
        yield


def _device() -> Any:
    """Return a device that we have kernels for: the GPU in use, if it is one of NVIDIA's, else the CPU."""
    if jax.default_backend() == "gpu":
        with contextlib.suppress(RuntimeError):
            return jax.local_devices(backend="cuda")[0]
    return jax.local_devices(backend="cpu")[0]


def _compare(found: Any, expected: Any) -> None:
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    if [(jnp.shape(x), jnp.result_type(x)) for x in found] != [(jnp.shape(x), jnp.result_type(x)) for x in expected]:
        raise _Differs("the results have other types than jax.jit's")
    for ours, theirs in zip(found, expected, strict=True):
        if not np.allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise _Differs("the results are not jax.jit's")


def _values() -> tuple[Any, Any]:
    places = np.arange(_ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS)
    return jnp.asarray(np.sin(places)), jnp.asarray(np.cos(places[0]))


def _normalised(x: Any, scale: Any) -> tuple[Any, Any]:
    weights = jnp.exp(x * scale)
    total = weights.sum(-1, keepdims=True)
    return weights / total * scale, total.sum(0)


def _called_back(x: Any, scale: Any) -> tuple[Any, Any]:
    total = io_callback(_plus_one, jax.ShapeDtypeStruct((), jnp.float32), x.sum(), ordered=True)
    return _normalised(x + total, scale)


def _plus_one(x: Any) -> Any:
    return np.asarray(x) + np.float32(1)


def _loss(jit: _Jit) -> Callable[..., Any]:
    def loss(x: Any, scale: Any) -> Any:
        result, total = jit(_normalised)(x, scale)
        return (result * result).sum() + total.sum()

    return loss


def _calls(jit: _Jit) -> Any:
    function = jit(_normalised)
    return [function(*_values()) for _ in range(3)]


def _derivatives(jit: _Jit) -> Any:
    forward = functools.partial(jax.jvp, jit(_normalised))
    return jax.grad(_loss(jit), (0, 1))(*_values()), jax.jit(forward)(_values(), _values())


def _mapped(jit: _Jit) -> Any:
    def both(x: Any, scale: Any) -> Any:
        each = jax.vmap(jax.grad(_loss(jit)), (0, None))(x[:, None], scale)
        return jax.vmap(jit(_normalised), (0, None))(jnp.stack([x, x + 1]), scale), each

    return jax.jit(both)(*_values())


def _checkpointed(jit: _Jit) -> Any:
    def twice(x: Any, scale: Any) -> Any:
        return _loss(jit)(jit(_normalised)(x, scale)[0], scale)

    def derivatives(x: Any, scale: Any) -> Any:
        policies = jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.everything_saveable, None
        return [jax.grad(jax.checkpoint(twice, policy=policy))(x, scale) for policy in policies]

    return jax.jit(derivatives)(*_values())


def _unused(jit: _Jit) -> Any:
    function = jit(_normalised)

    def first(x: Any, scale: Any) -> Any:
        return function(x, scale)[0]

    def in_order(x: Any, scale: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (first(carry, scale), None), x, None, length=2)[0]

    def all_of_them(x: Any, scale: Any) -> Any:
        return jax.jit(first)(x, scale), jax.grad(lambda x: in_order(x, scale).sum())(x)

    return jax.jit(all_of_them)(*_values())


def _series(jit: _Jit) -> Any:
    def series(*values: Any) -> Any:
        return None if jet is None else jet(jit(_normalised), values, [[v, v] for v in values])

    return jax.jit(series)(*_values())


def _checked(jit: _Jit) -> Any:
    x, scale = _values()
    checked = jax.jit(checkify.checkify(jit(_normalised), errors=checkify.float_checks))
    error, results = checked(x.at[0, 0].set(jnp.nan), scale)
    return jnp.asarray(error.get() is not None), results


def _donated(jit: _Jit) -> Any:
    x, scale = _values()
    result = jit(_normalised, donate_argnums=0)(x, scale)
    return result, jnp.asarray(x.is_deleted())


def _calling_back(jit: _Jit) -> Any:
    return jit(_called_back)(*_values())


def _called_meanwhile(jit: _Jit) -> Any:
    """Call a function as in the default modes, which have JAX's own dispatch call it."""
    if jit is jax.jit:
        return [jit(_normalised)(*_values())] * 7
    function = jit(_normalised, mode="async")
    before = [function(*_values()) for _ in range(3)]
    if not function.wait(_WAIT):
        raise TimeoutError(f"nothing was stitched in {_WAIT:.0f} s")
    after = [function(*_values()) for _ in range(3)]
    states = [program.state for program in function.status().programs]
    if states != ["stitched"] and jax.process_count() == 1:  # Of several, one does not choose for itself.
        raise _Differs(f"the function is {', '.join(states) or 'unknown'}, not stitched")
    function.clear_cache()
    return [*before, *after, function.lower(*_values()).compile()(*_values())]


_CHECKIFY = "checkify"
_OPTIONS: dict[str, Any] = {"planner": "beam", "autotune": False, "verify": False}
WAYS: tuple[tuple[str, Callable[[_Jit], Any]], ...] = (
    ("a call", _calls),
    ("a derivative", _derivatives),
    ("vmap", _mapped),
    ("checkpoint", _checkpointed),
    ("leaving out unused results", _unused),
    ("jet", _series),
    (_CHECKIFY, _checked),
    ("donation", _donated),
    ("an ordered callback", _calling_back),
    ("a call in the mode async", _called_meanwhile),
)
