"""AdamW over 84 tensors of a BERT-like encoder: 12 layers of 7 tensors."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, normal
from jax_stitch.demo.adam import adam_epsilon

LAMB = optax.lamb(1e-3)
MOMENTUM = optax.sgd(1e-2, momentum=0.9, nesterov=True)


def parameters(seed: int, size: Size, dtype: DTypeLike, scale: float) -> dict[str, dict[str, jax.Array]]:
    """``size`` is (layers, width)."""
    layers, width = size
    shapes = {
        "attention_qkv": (width, 3 * width),
        "attention_out": (width, width),
        "mlp_in": (width, 4 * width),
        "mlp_in_bias": (4 * width,),
        "mlp_out": (4 * width, width),
        "norm_scale": (width,),
        "norm_bias": (width,),
    }
    return {
        f"layer_{i}": {
            name: normal(seed + 31 * i + j, shape, dtype, scale) for j, (name, shape) in enumerate(shapes.items())
        }
        for i in range(layers)
    }


def _make(optimizer: optax.GradientTransformation, size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    def adamw_update(params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = parameters(0, size, dtype, 0.1)
    grads = parameters(1000, size, dtype, 0.01)
    # One update first: moments that are all zero would hide errors in them.
    state = optimizer.update(parameters(2000, size, dtype, 0.01), optimizer.init(params), params)[1]
    return adamw_update, (params, grads, state)


def _adamw(dtype: DTypeLike) -> optax.GradientTransformation:
    return optax.adamw(1e-3, eps=adam_epsilon(dtype))


def adamw(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """One update of every tensor."""
    return _make(_adamw(dtype), size, dtype)


def adamw_clipped(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """The same after clipping by the global norm of all gradients."""
    return _make(optax.chain(optax.clip_by_global_norm(1.0), _adamw(dtype)), size, dtype)


def lamb(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """One update, each tensor's step scaled by the norms of the tensor and of the step."""
    return _make(LAMB, size, dtype)


def momentum(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """One update by gradient descent with Nesterov's momentum."""
    return _make(MOMENTUM, size, dtype)


WORKLOADS = (
    Workload("adamw", "optimizer", adamw, (12, 768), ((12, 32), (12, 27)), xla_launches=86, target=2),
    Workload("adamw_clipped", "optimizer", adamw_clipped, (12, 768), ((12, 32), (12, 27)), xla_launches=219, target=3),
)

OTHERS = (
    Workload("lamb", "optimizer", lamb, (12, 768), ((12, 32), (12, 27))),
    Workload("momentum", "optimizer", momentum, (12, 768), ((12, 32), (12, 27))),
)
"""Not in the design's table."""
