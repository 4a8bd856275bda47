"""The JAX operation that a stitched function is: planned when lowered, transformed as the function it stands for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from jax_stitch import devices
from jax_stitch.capture import CaptureError, capture
from jax_stitch.capture.function import function_name
from jax_stitch.capture.support import unsupported
from jax_stitch.compile import CompilerMissing, KernelCompileError, NvrtcMissing
from jax_stitch.devices import Device
from jax_stitch.graph import GraphError
from jax_stitch.pipeline import Unstitchable, stitch_capture
from jax_stitch.replay import ReplayError

stitched_p = Primitive("stitched")
stitched_p.multiple_results = True

_inside: ContextVar[bool] = ContextVar("jax_stitch_inside", default=False)
"""Whether an outer stitched function is being captured: an inner one is then part of it."""

FALLBACKS = (
    Unstitchable,
    CaptureError,
    CompilerMissing,
    NvrtcMissing,
    KernelCompileError,
    GraphError,
    ReplayError,
)
"""Failures after which a function still runs, as ``jax.jit`` would run it."""


def bind(fun: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], scheduled_for: Device | None) -> Any:
    """Calls ``fun`` as one stitched operation. Only arrays are traced; other argument leaves are fixed."""
    leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
    traced = [n for n, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, *_ARRAYS))]

    def flat(*arrays: Any) -> Any:
        every = list(leaves)
        for n, array in zip(traced, arrays, strict=True):
            every[n] = array
        inner_args, inner_kwargs = jax.tree.unflatten(tree, every)
        return fun(*inner_args, **inner_kwargs)

    arrays = [leaves[n] for n in traced]
    jaxpr, shape = jax.make_jaxpr(flat, return_shape=True)(*arrays)
    reason = unsupported(jaxpr, arrays)
    if reason is not None:
        warn(function_name(fun), reason)
        return fun(*args, **kwargs)
    lifted = [c for c in jaxpr.consts if isinstance(c, jax.core.Tracer)]
    if lifted:
        jaxpr = jax.make_jaxpr(_with_constants(jaxpr))(lifted, *arrays)
    out_tree = jax.tree.structure(shape)
    results = stitched_p.bind(
        *lifted, *arrays, jaxpr=jaxpr, name=function_name(fun), scheduled_for=scheduled_for
    )
    return jax.tree.unflatten(out_tree, results)


def _array_types() -> tuple[type, ...]:
    import numpy as np

    return (np.ndarray, np.generic)


_ARRAYS = _array_types()


def _with_constants(jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function of those constants of ``jaxpr`` that are traced, and of its arguments."""

    def flat(lifted: Sequence[Any], *arrays: Any) -> list[Any]:
        given = iter(lifted)
        constants = [next(given) if isinstance(c, jax.core.Tracer) else c for c in jaxpr.consts]
        return jaxpr_as_fun(ClosedJaxpr(jaxpr.jaxpr, constants))(*arrays)

    return flat


def warn(name: str, reason: object) -> None:
    """Says that a function runs unstitched."""
    warnings.warn(f"{name} runs as plain jax.jit: {reason}", UserWarning, stacklevel=3)


def _stitched(jaxpr: ClosedJaxpr, name: str, scheduled_for: Device | None, device: Device) -> Callable[..., list[Any]]:
    """The function of flat arrays that runs the stitched kernels; the plain one where stitching is impossible."""
    plain = jaxpr_as_fun(jaxpr)

    def run(*arrays: Any) -> list[Any]:
        return plain(*arrays)

    run.__name__ = run.__qualname__ = name
    if _inside.get():
        return run
    try:
        with _capturing():
            captured = capture(run, [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in jaxpr.in_avals], device)
        stitched = stitch_capture(captured, scheduled_for or device)
        compiled = stitched.compile("host" if device.sm is None else device.sm)
    except FALLBACKS as failure:
        warn(name, failure)
        return run

    def rebuilt(*arrays: Any) -> list[Any]:
        return list(captured.unflatten(compiled(captured.flatten(arrays))))

    return rebuilt


@contextmanager
def _capturing() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


@stitched_p.def_impl
def _impl(*arrays: Any, **parameters: Any) -> list[Any]:
    return jax.jit(lambda *xs: stitched_p.bind(*xs, **parameters))(*arrays)


@stitched_p.def_abstract_eval
def _abstract_eval(*avals: Any, jaxpr: ClosedJaxpr, **_: Any) -> Sequence[Any]:
    del avals
    return jaxpr.out_avals


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, **_: Any) -> tuple[Any, Any]:
    """Differentiating differentiates the original function, step by step."""
    tangents = [
        ad.instantiate_zeros(t) if isinstance(t, ad.Zero) else t for t in tangents
    ]
    return jax.jvp(jaxpr_as_fun(jaxpr), tuple(primals), tuple(tangents))


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, jaxpr: ClosedJaxpr, name: str, scheduled_for: Device | None) -> Any:
    """The batched function is a function like another: it is stitched for the batched shapes."""
    axes = tuple(dims)  # None where an array is not mapped
    mapped = jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)
    mapped.__name__ = name
    results = bind(mapped, arrays, {}, scheduled_for)
    return results, [0] * len(results)


def _lower(ctx: Any, *arrays: Any, jaxpr: ClosedJaxpr, name: str, scheduled_for: Device | None) -> Any:
    platforms = ctx.module_context.platforms
    device = _device_for(platforms)
    if device is None:
        if not _inside.get():
            warn(name, f"it is lowered for {', '.join(platforms)} at once")
        fun: Callable[..., Any] = jaxpr_as_fun(jaxpr)
    else:
        fun = _stitched(jaxpr, name, scheduled_for, device)
    return mlir.lower_fun(fun, multiple_results=True)(ctx, *arrays)


def _device_for(platforms: Sequence[str]) -> Device | None:
    if len(platforms) != 1:
        return None
    if platforms[0] == "cpu":
        return devices.get("cpu")
    return devices.get(None) if platforms[0] == "cuda" and jax.default_backend() == "gpu" else None


ad.primitive_jvps[stitched_p] = _jvp
batching.primitive_batchers[stitched_p] = _batch
mlir.register_lowering(stitched_p, _lower)
