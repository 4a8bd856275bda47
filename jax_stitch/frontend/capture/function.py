"""From a function and its arguments' types to XLA's optimized HLO."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from jax_stitch.devices import Device
from jax_stitch.frontend.capture.compiled import Compiled
from jax_stitch.frontend.capture.described import with_described_calls
from jax_stitch.frontend.capture.errors import CaptureError
from jax_stitch.frontend.capture.given import Given, given_text
from jax_stitch.frontend.capture.options import analysis_options, default_options
from jax_stitch.frontend.capture.physical import abstract, from_physical, physical_aval, to_physical
from jax_stitch.frontend.capture.placement import Partitioning, Placement
from jax_stitch.frontend.capture.program import Program, lower
from jax_stitch.frontend.capture.support import callbacks_effects, calls_python, is_spread, spread, unsupported
from jax_stitch.util.formatting import one_line
from jax_stitch.util.jax_names import ClosedJaxpr, jaxpr_as_fun

_EMBEDDED_CONSTANT_BYTES = 4096
"""Larger arrays that a function closes over become arguments: nobody wants to print and parse them."""


@dataclass(frozen=True, eq=False)
class Capture:
    """A function as XLA compiled it for one device, or for each of several.

    ``parameters`` are the types of the HLO entry's parameters, one by one in order: ``constants`` first, then the
    leaves of the arguments. ``results`` are those of the root's elements. Tokens are in neither. HLO knows neither PRNG
    keys nor weak types nor pytrees: ``flatten`` and ``unflatten`` go between. Over several devices, parameters and
    results are one device's parts, as ``partitioning`` says; what ``flatten`` and ``unflatten`` deal with are whole
    arrays.
    """

    name: str
    device: Device
    constants: tuple[Any, ...] = field(repr=False)
    """Arrays that the function closes over, as leading arguments. Under an outer trace some may be tracers of it: then
    the capture is of no use once that trace ends."""
    parameters: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[jax.ShapeDtypeStruct, ...]
    in_tree: jax.tree_util.PyTreeDef = field(repr=False)
    """Structure of ``(args, kwargs)``."""
    out_tree: jax.tree_util.PyTreeDef = field(repr=False)
    in_avals: tuple[jax.ShapeDtypeStruct, ...] = field(repr=False)
    """Types of the leaves of the arguments as JAX sees them."""
    out_avals: tuple[jax.ShapeDtypeStruct, ...] = field(repr=False)
    unsupported: str | None
    """Why the function has to be left to ``jax.jit``, as the end of a sentence; None if it need not."""
    partitioning: Partitioning | None
    """How the program is split between several devices; None for one device."""
    effects: frozenset[Any] = field(repr=False)
    """Those of its calls of Python functions, as JAX keeps them."""
    seconds: float
    """Time that tracing and lowering took."""
    _program: Program | None = field(repr=False)
    _known_text: str | None = field(repr=False)
    """``text`` where it is there already: given, or compiled for the sake of ``partitioning``."""
    donated: tuple[int, ...] = ()
    """The parameters whose memory the results may take, by number."""
    given: Given | None = None
    """Where the function is a program with HLO of its own, which is planned as it is."""
    compiled: Compiled | None = None
    """What JAX has compiled of it already, if that is known."""
    place: str = ""
    """Where the user's function is defined: file and line."""

    @functools.cached_property
    def text(self) -> str:
        """Return the HLO text that is planned: ``default_text``, so that what is planned competes with what would run.
        Where that calls libraries whose operations cannot be read, text compiled without (``analysis_options``). Empty
        if ``unsupported``.

        Compiled when first asked for.
        """
        if self._known_text is not None:
            return self._known_text
        if self._program is None:
            return ""
        with contextlib.suppress(CaptureError):  # What XLA cannot compile by itself it may without libraries.
            if not _hides_operations(self.default_text):
                return self.default_text
        return self._program.first_text(analysis_options(self.device))

    @property
    def is_partitioned(self) -> bool:
        """Return whether it is one device's part of a program for several."""
        return self.partitioning is not None

    @property
    def xla_seconds(self) -> float | None:
        """Return seconds of processor time that XLA took for it, at least about; None where that is not known."""
        return None if self.compiled is None else self.compiled.cost

    @functools.cached_property
    def homes(self) -> Mapping[int, int]:
        """Return, by number of a donated parameter, the result that takes its memory (see ``Program``)."""
        return self._program.homes if self._program is not None and self.donated else {}

    @property
    def callbacks(self) -> tuple[Callable[..., Any], ...]:
        """Return the Python functions that it calls, by the numbers that they have in ``text``; see ``Program``."""
        return () if self._program is None else self._program.callbacks

    def stablehlo(self, names: bool = False) -> str:
        """Return the program before XLA, the same in every process; with ``names``, also where its operations come
        from.
        """
        if self._program is None:
            raise CaptureError(f"{self.name} is not lowered: {self.unsupported}")
        return self._program.stablehlo(names)

    def bytecode(self) -> bytes:
        """Return the program before XLA as MLIR bytecode of this version of jaxlib: its ``main`` takes
        ``parameters``.
        """
        if self._program is None:
            raise CaptureError(f"{self.name} is not lowered: {self.unsupported}")
        return self._program.bytecode()

    @functools.cached_property
    def default_text(self) -> str:
        """Return the HLO text of XLA's default compilation: what ``jax.jit`` would run. It is compiled when first asked
        for, unless it is known.
        """
        if self.given is not None and self.given.default_text is not None:
            return self.given.default_text
        if self.compiled is not None:
            return self.compiled.text
        if self._program is None:
            raise CaptureError(f"{self.name} is not compiled: {self.unsupported}")
        return self._program.default_text()

    @property
    def whole_parameters(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return ``parameters``, of all devices together."""
        return tuple(physical_aval(aval) for aval in (*map(abstract, self.constants), *self.in_avals))

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the entry's arguments for a call of the function, also of tracers. ``ValueError`` for another
        pytree.
        """
        leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs or {})))
        if tree != self.in_tree:
            raise ValueError(f"{self.name} was captured for arguments of the structure {self.in_tree}, not {tree}")
        return [*self.constants, *(to_physical(leaf, aval) for leaf, aval in zip(leaves, self.in_avals, strict=True))]

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Return what the function returns, from the entry's results; works on tracers."""
        leaves = [from_physical(result, aval) for result, aval in zip(results, self.out_avals, strict=True)]
        return jax.tree.unflatten(self.out_tree, leaves)


def capture(
    fun: Callable[..., Any],
    args: Sequence[Any],
    device: Device,
    *,
    kwargs: Mapping[str, Any] | None = None,
    placement: Placement | None = None,
    donated: Collection[int] = (),
) -> Capture:
    """Lower ``fun(*args, **kwargs)`` for a device, attached or only described; its HLO is compiled when asked for.

    With a ``placement`` of the arguments' leaves it is compiled for each of several such devices. ``donated`` are
    leaves whose memory the results may take, by number; over several devices they are not.

    The arguments are pytrees of arrays, tracers, Python scalars or ``jax.ShapeDtypeStruct``; only their types count.
    Works while JAX is tracing. Whatever ``fun`` raises passes through; raises ``CaptureError`` where XLA fails,
    ``CudaPluginMissing`` where it is not there.
    """
    start = time.perf_counter()
    leaves, in_tree = jax.tree.flatten((tuple(args), dict(kwargs or {})))
    in_avals = tuple(map(abstract, leaves))
    jaxpr, out_tree, out_avals = _traced(fun, leaves, in_tree)
    name = function_name(fun)
    reason = unsupported(jaxpr)
    effects = callbacks_effects(jaxpr)
    if not device.compiles_here and reason is None and calls_python(jaxpr) is not None:
        jaxpr = with_described_calls(jaxpr)
    flat, lifted = _flat_function(jaxpr, in_avals, out_avals)
    flat.__name__ = flat.__qualname__ = name
    arguments = [physical_aval(aval) for aval in (*map(abstract, lifted), *in_avals)]
    reason = reason or _wrongly_spread(jaxpr, leaves, placement)
    if placement is not None:
        placement = replace(placement, arguments=(*(None for _ in lifted), *placement.arguments))
    taken = () if placement is not None else [len(lifted) + k for k in sorted(donated)]
    program = lower(flat, arguments, device, placement, taken) if reason is None else None
    hoisted = program.constants if program is not None else ()
    parameters = (*(physical_aval(abstract(h)) for h in hoisted), *arguments)
    results = tuple(map(physical_aval, out_avals))
    given = given_text(jaxpr) if reason is None else None
    text, split = _known_text(given, program, device, placement)
    if split is not None:
        parameters, results = split.argument_parts(parameters), split.result_parts(results)
    return Capture(
        name=name,
        device=device,
        constants=(*hoisted, *(_physical_constant(constant) for constant in lifted)),
        parameters=parameters,
        results=results,
        in_tree=in_tree,
        out_tree=out_tree,
        in_avals=in_avals,
        out_avals=out_avals,
        unsupported=reason,
        partitioning=split,
        effects=effects,
        seconds=time.perf_counter() - start,
        _program=program,
        _known_text=text,
        donated=tuple(len(hoisted) + k for k in taken),
        given=given,
    )


def _traced(
    fun: Callable[..., Any], leaves: Sequence[Any], in_tree: Any
) -> tuple[ClosedJaxpr, Any, tuple[jax.ShapeDtypeStruct, ...]]:
    """Return the function's jaxpr, and the structure and the types of what it returns."""
    # Types without shardings, which a function may ask for where there are several devices.
    traced_leaves = leaves if is_spread(leaves) else list(map(abstract, leaves))
    args, kwargs = jax.tree.unflatten(in_tree, traced_leaves)
    jaxpr, out_info = jax.make_jaxpr(fun, return_shape=True)(*args, **kwargs)
    out_leaves, out_tree = jax.tree.flatten(out_info)
    return jaxpr, out_tree, tuple(map(abstract, out_leaves))


def _wrongly_spread(jaxpr: ClosedJaxpr, leaves: Sequence[Any], placement: Placement | None) -> str | None:
    """Return why a function cannot be stitched on the devices that its arguments lie on."""
    if placement is None:
        return spread(jaxpr, leaves)
    call = calls_python(jaxpr)
    return f"on several devices {call}" if call is not None else None


def _known_text(
    given: Given | None, program: Program | None, device: Device, placement: Placement | None
) -> tuple[str | None, Partitioning | None]:
    """Return the HLO, where it is known before anybody asks for it, and how it is divided over several devices."""
    if given is not None:
        return given.text, None if placement is None else placement.partitioning
    if program is not None and placement is not None:
        final, split = program.partitioned_text(default_options(device), placement)
        if _hides_operations(final):
            return program.partitioned_text(analysis_options(device), placement)
        return final, split
    return None, None


def _hides_operations(text: str) -> bool:
    # Only here: a process that finds its programs on disk has no use for graphs, and one whose kernels another makes
    # none for the parser.
    from jax_stitch.graph.library_targets import may_hide_operations

    if not may_hide_operations(text):
        return False
    from jax_stitch.graph.rewrites.library_calls import hides_operations

    return hides_operations(text)


def function_name(fun: Callable[..., Any]) -> str:
    """Return a name for a function, also where it is a partial application or an object; printable, as it is shown."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return one_line(str(getattr(fun, "__name__", type(fun).__name__)))


def _flat_function(
    jaxpr: ClosedJaxpr, in_avals: Sequence[jax.ShapeDtypeStruct], out_avals: Sequence[jax.ShapeDtypeStruct]
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """Return the traced function between physical arrays, and those of its constants that have become its first
    arguments.
    """
    lifted = [constant for constant in jaxpr.consts if _is_lifted(constant)]
    avals = [*map(abstract, lifted), *in_avals]

    def flat(*arrays: Any) -> list[Any]:
        values = iter([from_physical(array, aval) for array, aval in zip(arrays, avals, strict=True)])
        constants = [next(values) if _is_lifted(constant) else constant for constant in jaxpr.consts]
        results = jaxpr_as_fun(ClosedJaxpr(jaxpr.jaxpr, constants))(*values)
        return [to_physical(result, aval) for result, aval in zip(results, out_avals, strict=True)]

    return flat, lifted


def _is_lifted(constant: Any) -> bool:
    return isinstance(constant, jax.core.Tracer) or getattr(constant, "nbytes", 0) > _EMBEDDED_CONSTANT_BYTES


def _physical_constant(constant: Any) -> Any:
    aval = abstract(constant)
    if isinstance(constant, jax.core.Tracer):
        return to_physical(constant, aval)
    with jax.ensure_compile_time_eval():  # A concrete array must not become a tracer of a trace that will end.
        return to_physical(constant, aval)
