"""The public face: ``stitch``, ``stitch_jit`` and their plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jax_stitch import devices
from jax_stitch.capture import Capture, capture, lower, traffic
from jax_stitch.capture.function import function_name
from jax_stitch.capture.traffic import Traffic
from jax_stitch.devices import Device
from jax_stitch.explore.cost import node_bytes
from jax_stitch.operation import bind
from jax_stitch.pipeline import Stitched, Unstitchable, stitch_capture
from jax_stitch.plan import Boundary, KernelPlan, Launch, Plan


def stitch(fun: Callable[..., Any], *, schedule_device: str | None = None) -> Callable[..., Any]:
    """``fun`` with its operations re-fused into stitched kernels, to be called under ``jax.jit`` (or by itself).

    Arrays among the arguments may be traced; anything else is part of the function. Planning happens when JAX lowers the call, for the platform
    it lowers for. The result composes with JAX's transformations: the derivative or the batched form of ``fun`` is stitched anew.
    A function that cannot be stitched runs as it is, with one warning that says why.

    ``schedule_device`` (a name of ``jax_stitch.devices``) lays the kernels out for another device than the one that runs them: the kernels for an
    "h200", with its launch dimensions, then run on a CPU.
    """
    scheduled_for = devices.get(schedule_device) if schedule_device is not None else None

    @functools.wraps(fun)
    def stitched(*args: Any, **kwargs: Any) -> Any:
        return bind(fun, args, kwargs, scheduled_for)

    return stitched


class StitchJit:
    """``jax.jit(stitch(fun), ...)`` with ``plan``. Everything else that ``jax.jit``'s result has is here too."""

    def __init__(self, fun: Callable[..., Any], **jit_options: Any):
        functools.update_wrapper(self, fun)
        self._fun = fun
        self.jit_options = jit_options
        self._jit = jax.jit(stitch(fun), **jit_options)
        self._plain = jax.jit(fun, **jit_options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._jit(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_jit"), name)

    def __repr__(self) -> str:
        return f"stitch_jit({self._fun!r})"

    def plan(self, *args: Any, device: str | None = None, **kwargs: Any) -> Plan:
        """The fusion plan for these arguments (arrays or ``jax.ShapeDtypeStruct``) on a device, which need not be there.

        ``device`` is a name of ``jax_stitch.devices`` ("h200", "a100", "cpu", ...), by default the one in use. Raises
        ``UnknownDeviceError``; ``CudaPluginMissing`` or ``NvrtcMissing`` for a GPU where the packages for planning are not installed.
        """
        wanted = devices.get(device)
        dynamic, fixed = _without_static(self._fun, args, kwargs, self.jit_options)
        return make_plan(fixed, dynamic, wanted)


def stitch_jit(fun: Callable[..., Any] | None = None, /, **jit_options: Any) -> Any:
    """``jax.jit`` that re-fuses what XLA fused. Takes every argument that ``jax.jit`` takes; works with and without parentheses."""
    if fun is None:
        return functools.partial(stitch_jit, **jit_options)
    if not callable(fun):
        raise TypeError(f"stitch_jit expects a function, not {type(fun).__name__}")
    return StitchJit(fun, **jit_options)


def _without_static(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]
) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], Callable[..., Any]]:
    """The arguments that are traced, and the function of them with static ones filled in."""
    numbers = options.get("static_argnums") or ()
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    static = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    names = options.get("static_argnames") or ()
    names = {names} if isinstance(names, str) else set(names)

    def fixed(*dynamic: Any, **keywords: Any) -> Any:
        rest = iter(dynamic)
        every = [a if n in static else next(rest) for n, a in enumerate(args)]
        return fun(*every, **keywords, **{k: v for k, v in kwargs.items() if k in names})

    fixed.__name__ = function_name(fun)
    dynamic = tuple(a for n, a in enumerate(args) if n not in static)
    return (dynamic, {k: v for k, v in kwargs.items() if k not in names}), fixed


def make_plan(fun: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]], device: Device) -> Plan:
    """Plans a function for a device, attached or described."""
    args, kwargs = arguments
    captured = capture(fun, args, device, kwargs=kwargs)
    count_xla = functools.partial(_count, captured)
    try:
        stitched = stitch_capture(captured, device)
    except Unstitchable as reason:
        whole = (Boundary(captured.name, "function", str(reason)),)
        nothing = functools.partial(traffic, "HloModule empty\n\nENTRY e {\n  ROOT t = () tuple()\n}\n")
        count = count_xla if captured.unsupported is None else nothing
        return Plan(
            captured.name, device, (), whole, _bound(captured), captured.text, count, count, (f"not stitched: {reason}",)
        )
    return Plan(
        captured.name,
        device,
        tuple(_kernel_plan(stitched, n) for n in range(len(stitched.kernels))),
        tuple(_boundaries(stitched)),
        _bound(captured),
        captured.text,
        count_xla,
        functools.partial(_count_stitched, stitched),
        (),
        stitched.seconds,
    )


def _count(captured: Capture) -> Traffic:
    return traffic(captured.default_text)


def _count_stitched(stitched: Stitched) -> Traffic:
    """Traffic of the rebuilt program as XLA compiles it for the device."""
    device = stitched.device
    run = stitched.compile(target_of(device))

    def rebuilt(*parameters: Any) -> list[Any]:
        return run(parameters)

    rebuilt.__name__ = stitched.capture.name
    return traffic(lower(rebuilt, stitched.capture.parameters, device).default_text())


def target_of(device: Device) -> str:
    """What kernels for a device are compiled to."""
    return "host" if device.sm is None else device.sm


def _bound(captured: Capture) -> int:
    arrays = (*captured.parameters, *captured.results)
    return sum(a.size * a.dtype.itemsize for a in arrays)


def _kernel_plan(stitched: Stitched, n: int) -> KernelPlan:
    kernel = stitched.kernels[n]
    graph = kernel.scheduled.graph
    nodes = [graph[i] for p in kernel.scheduled.parts for i in sorted(p.pattern.nodes)]
    source = kernel.source
    return KernelPlan(
        name=source.name,
        source=source.text,
        launch=Launch(source.grid, source.block, source.shared_bytes),
        ops=tuple(n.name or n.op for n in nodes),
        xla_kernels=tuple(dict.fromkeys(n.kernel for n in nodes if n.kernel)),
        composition=kernel.scheduled.composition,
        schedule="; ".join(dict.fromkeys(str(p.split) for p in kernel.scheduled.parts)),
        bytes_read=sum(node_bytes(graph[i]) for i in kernel.inputs),
        bytes_written=sum(node_bytes(graph[i]) for i in kernel.outputs),
        launches=kernel.launches,
    )


def _boundaries(stitched: Stitched) -> list[Boundary]:
    found: list[Boundary] = []
    plans = [stitched.plan]
    while plans:
        plan = plans.pop()
        plans += plan.children.values()
        for cut in plan.cuts:
            node = plan.graph[cut.node]
            found.append(Boundary(node.name or node.op, node.op, cut.reason, node.kernel))
    return found
