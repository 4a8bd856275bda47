"""The public functions of JAX that programs are drawn from, found by walking its modules."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.fft
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.signal
import jax.scipy.special
import jax.scipy.stats

MODULES: Mapping[str, Any] = {
    "lax": jax.lax,
    "lax.linalg": jax.lax.linalg,
    "jnp": jnp,
    "jnp.linalg": jnp.linalg,
    "jnp.fft": jnp.fft,
    "jax.nn": jax.nn,
    "jax.random": jax.random,
    "jax.image": jax.image,
    "jax.scipy.special": jax.scipy.special,
    "jax.scipy.linalg": jax.scipy.linalg,
    "jax.scipy.signal": jax.scipy.signal,
    "jax.scipy.ndimage": jax.scipy.ndimage,
    "jax.scipy.fft": jax.scipy.fft,
    "jax.scipy.stats": jax.scipy.stats,
    "jax.ops": jax.ops,
}
"""By the prefix that a program writes; the modules of distributions in ``jax.scipy.stats`` come besides."""

_OF_SHAPES = "takes or returns shapes, types or other Python values, no arrays"
_DEVICES = "moves data between devices: a program here has one"
_PYTHON = "calls Python, reads files or prints"
_CHANGES = "changes its argument in place, which JAX's arrays do not allow"
_DYNAMIC = "its result's shape depends on values, and it takes no size"
_EMPTY = "its result is uninitialised, or a token"

EXCLUDED: Mapping[str, str] = {
    **dict.fromkeys(
        [
            "lax.broadcast_shapes",
            "lax.conv_dimension_numbers",
            "lax.conv_general_permutations",
            "lax.conv_general_shape_tuple",
            "lax.conv_shape_tuple",
            "lax.conv_transpose_shape_tuple",
            "lax.dtype",
            "lax.padtype_to_pads",
            "lax.reduce_window_shape_tuple",
            "lax.shape_as_value",
            "jnp.broadcast_shapes",
            "jnp.can_cast",
            "jnp.isdtype",
            "jnp.iterable",
            "jnp.issubdtype",
            "jnp.promote_types",
            "jnp.result_type",
            "jnp.einsum_path",
            "jnp.iscomplexobj",
            "jnp.isrealobj",
            "jnp.isscalar",
            "jnp.ndim",
            "jnp.shape",
            "jnp.size",
            "jnp.dtype",
            "jnp.finfo",
            "jnp.iinfo",
            "jax.random.key_impl",
            "jax.random.key_dtype",
            "jax.nn.get_scaled_dot_general_config",
            "jnp.c_",
            "jnp.r_",
            "jnp.s_",
            "jnp.mgrid",
            "jnp.ogrid",
            "jnp.index_exp",
        ],
        _OF_SHAPES,
    ),
    **dict.fromkeys(
        [
            "lax.pbroadcast",
            "lax.pcast",
            "lax.precv",
            "lax.psend",
            "lax.psum_scatter_start",
            "lax.ragged_all_to_all",
            "lax.with_sharding_constraint",
        ],
        _DEVICES,
    ),
    **dict.fromkeys(
        [
            "jnp.array_repr",
            "jnp.array_str",
            "jnp.printoptions",
            "jnp.get_printoptions",
            "jnp.set_printoptions",
            "jnp.load",
            "jnp.save",
            "jnp.savez",
            "jnp.from_dlpack",
            "jnp.frombuffer",
            "jnp.fromfile",
            "jnp.fromiter",
            "jnp.fromstring",
            "jnp.frompyfunc",
        ],
        _PYTHON,
    ),
    **dict.fromkeys(("jnp.fill_diagonal", "jnp.place", "jnp.put"), _CHANGES),
    **dict.fromkeys(("jnp.trim_zeros", "jnp.unique_all"), _DYNAMIC),
    **dict.fromkeys(
        ("lax.after_all", "lax.create_token", "lax.empty", "jnp.empty", "jnp.empty_like"),
        _EMPTY,
    ),
    "lax.dce_sink": "has an effect and no result",
    "lax.stage": "is for high-level types of JAX's own tests",
    "lax.conv_general_dilated_local": "XLA's CPU compiler takes minutes over it",
    "jax.nn.scaled_matmul": "needs a GPU of a certain kind",
    "jax.nn.scaled_dot_general": "needs a GPU of a certain kind",
    "jax.random.multinomial": "loops over trials that are drawn, for minutes",
    "jax.scipy.linalg.funm": "calls NumPy",
    "jax.scipy.linalg.rsf2csf": "takes minutes",
}
"""What is left out, and why."""


@cache
def surface() -> dict[str, Callable[..., Any]]:
    """All functions by the name that a program calls them by, without those left out."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, module in {**MODULES, **_distributions()}.items():
        for name in sorted(dir(module)):
            thing = getattr(module, name)
            full = f"{prefix}.{name}"
            if name.startswith("_") or not is_function(thing) or full in EXCLUDED:
                continue
            found[full] = thing
            if isinstance(thing, jnp.ufunc):
                methods = ("reduce", "accumulate", "outer", "reduceat", "at") if thing.nin == 2 else ("at",)
                found.update({f"{full}.{m}": getattr(thing, m) for m in methods if f"{full}.{m}" not in EXCLUDED})
    return found


def is_function(thing: Any) -> bool:
    """Whether a public name is a function of arrays, as far as one can see: no class, module, type or constant."""
    if isinstance(thing, (type, types.ModuleType)) or not callable(thing):
        return False
    return getattr(thing, "__module__", "") != "typing" and not isinstance(thing, types.GenericAlias | types.UnionType)


def _distributions() -> dict[str, Any]:
    stats = jax.scipy.stats
    modules = {n: getattr(stats, n) for n in dir(stats) if inspect.ismodule(getattr(stats, n))}
    return {f"jax.scipy.stats.{n}": m for n, m in modules.items() if not n.startswith("_")}
