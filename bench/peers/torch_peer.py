"""The micro-benchmarks and the optimizers in PyTorch, through ``torch.compile`` or as they are.

Derivatives are computed as PyTorch computes them: the forward pass, then the backward pass with what the forward saved.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Size = tuple[int, ...]
Call = Callable[[], Any]
EPSILON = 1e-5
ROUNDS, SAMPLE_SECONDS = 25, 0.01


@dataclass(frozen=True, slots=True)
class Setting:
    """Where tensors are made, and what compiles functions."""

    dtype: torch.dtype
    device: str
    compiled: bool

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0, grad: bool = False) -> torch.Tensor:
        values = torch.randn(shape, device=self.device) * scale + mean
        return values.to(self.dtype).requires_grad_(grad)

    def labels(self, count: int, end: int) -> torch.Tensor:
        return torch.randint(0, end, (count,), device=self.device)

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, dynamic=False) if self.compiled else function


def timed(workload: str, size: Size, dtype: str, device: str, seconds: float, *, compiled: bool) -> dict[str, Any]:
    """Median, spread and samples of the seconds per call."""
    torch.manual_seed(0)
    call = _call(workload, size, Setting(getattr(torch, dtype), device, compiled))
    samples = _samples(call, device, seconds)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    median = statistics.median(samples)
    return {"median": median, "spread": (high - low) / median, "samples": samples}


def _samples(call: Call, device: str, seconds: float) -> list[float]:
    for _ in range(3):
        call()
    once = max(_several(call, device, 3), 1e-7)
    calls = max(1, math.ceil(SAMPLE_SECONDS / once))
    rounds = max(3, min(ROUNDS, int(seconds / (once * calls))))
    return [_several(call, device, calls) for _ in range(rounds)]


def _several(call: Call, device: str, calls: int) -> float:
    """Seconds per call: by the device's own events on a GPU."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / calls
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def _call(workload: str, size: Size, setting: Setting) -> Call:
    if workload.startswith("softmax"):
        axis = {"softmax_first": 0, "softmax_middle": 1}.get(workload, -1)
        return _forward(lambda x: F.softmax(x, axis), (setting.normal(*size, scale=3.0),), setting)
    if workload in ("adamw", "adamw_clipped"):
        return _adamw(size, setting, clipped=workload == "adamw_clipped")
    name = workload.removesuffix("_and_gradient").removesuffix("_gradient")
    function, args, cotangent = MAKERS[name](size, setting, workload != name)
    if workload == name:
        return _forward(function, args, setting)
    return _with_gradient(function, args, cotangent, setting)


Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...], torch.Tensor | None]


def _forward(function: Callable[..., Any], args: tuple[torch.Tensor, ...], setting: Setting) -> Call:
    program = setting.program(function)

    def call() -> Any:
        with torch.no_grad():
            return program(*args)

    return call


def _with_gradient(
    function: Callable[..., Any], args: tuple[torch.Tensor, ...], cotangent: torch.Tensor | None, setting: Setting
) -> Call:
    program = setting.program(function)
    wanted = [x for x in args if x.requires_grad]

    def call() -> Any:
        return torch.autograd.grad(program(*args), wanted, cotangent)

    return call


def _layer_norm(size: Size, setting: Setting, grad: bool) -> Made:
    features = size[-1:]
    args = _normed(size, features, setting, grad)
    return lambda x, scale, bias: F.layer_norm(x, features, scale, bias, EPSILON), args, setting.normal(*size)


def _normed(size: Size, features: Size, setting: Setting, grad: bool) -> tuple[torch.Tensor, ...]:
    return (
        setting.normal(*size, scale=2.0, mean=0.5, grad=grad),
        setting.normal(*features, scale=0.1, mean=1.0, grad=grad),
        setting.normal(*features, scale=0.1, grad=grad),
    )


def _rms_norm_rope(size: Size, setting: Setting, grad: bool) -> Made:
    tokens, features = size
    heads = next(h for h in (16, 8, 4, 3, 2, 1) if features % (2 * h) == 0)
    half = features // heads // 2
    angles = torch.arange(tokens, device=setting.device)[:, None] * 10000.0 ** (
        -torch.arange(half, device=setting.device) / half
    )

    def function(x: torch.Tensor, scale: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * scale
        first, second = normed.reshape(tokens, heads, -1).chunk(2, -1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).reshape(x.shape)

    x, scale, _ = _normed(size, size[-1:], setting, grad)
    args = x, scale, angles.cos().to(setting.dtype), angles.sin().to(setting.dtype)
    return function, args, setting.normal(*size)


def _group_norm(size: Size, setting: Setting, grad: bool) -> Made:
    """Channels last, as the JAX workload has them: the tensor's order in memory is the same."""
    groups = math.gcd(size[-1], 32)

    def function(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x.permute(0, 3, 1, 2), groups, scale, bias, EPSILON).permute(0, 2, 3, 1)

    return function, _normed(size, size[-1:], setting, grad), setting.normal(*size)


def _batch_norm(size: Size, setting: Setting, grad: bool) -> Made:
    def function(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        moved = x.permute(0, 3, 1, 2)
        return F.batch_norm(moved, None, None, scale, bias, training=True, eps=EPSILON).permute(0, 2, 3, 1)

    return function, _normed(size, size[-1:], setting, grad), setting.normal(*size)


def _residual(size: Size, setting: Setting, grad: bool) -> Made:
    def function(residual: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> Any:
        stream = residual + F.dropout(x, 0.1)
        return stream, F.layer_norm(stream, size[-1:], scale, bias, EPSILON)

    return function, (setting.normal(*size), *_normed(size, size[-1:], setting, grad)), None


def _cross_entropy(size: Size, setting: Setting, grad: bool) -> Made:
    args = setting.normal(*size, scale=3.0, grad=grad), setting.labels(*size)
    return lambda logits, labels: F.cross_entropy(logits, labels), args, None


def _negative_log_likelihood(size: Size, setting: Setting, grad: bool) -> Made:
    def function(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -F.log_softmax(logits, -1).gather(-1, labels[:, None]).mean()

    return function, _cross_entropy(size, setting, grad)[1], None


def _one_array(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Size, Setting, bool], Made]:
    return lambda size, setting, grad: (function, (setting.normal(*size, scale=1.5, mean=0.3, grad=grad),), None)


MAKERS: dict[str, Callable[[Size, Setting, bool], Made]] = {
    "layer_norm": _layer_norm,
    "rms_norm_rope": _rms_norm_rope,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "residual_dropout_layer_norm": _residual,
    "cross_entropy": _cross_entropy,
    "negative_log_likelihood": _negative_log_likelihood,
    "standardise": _one_array(lambda x: (x - x.mean()) / (x.std(correction=0) + EPSILON)),
    "logsumexp": _one_array(lambda x: torch.logsumexp(x, -1)),
    "cumsum": _one_array(lambda x: torch.cumsum(x, -1)),
}


def _adamw(size: Size, setting: Setting, *, clipped: bool) -> Call:
    layers, width = size
    shapes = (
        (width, 3 * width),
        (width, width),
        (width, 4 * width),
        (4 * width,),
        (4 * width, width),
        (width,),
        (width,),
    )
    params = [setting.normal(*shape, scale=0.1, grad=True) for _ in range(layers) for shape in shapes]
    for param in params:
        param.grad = setting.normal(*param.shape, scale=0.01)
    optimizer = torch.optim.AdamW(params, lr=1e-3)

    def step() -> None:
        if clipped:
            torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()

    return setting.program(step)
