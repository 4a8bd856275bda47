"""A function lowered for one device, and its compilation to optimized HLO, wherever the compiler for that runs."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import jax

from jax_stitch.devices import Device
from jax_stitch.frontend.capture.client import Option
from jax_stitch.frontend.capture.errors import CaptureError, unknown_call
from jax_stitch.frontend.capture.hlo_text import full_text
from jax_stitch.frontend.capture.kept import described_text
from jax_stitch.frontend.capture.options import default_options
from jax_stitch.frontend.capture.placement import Partitioning, Placement, partitioning
from jax_stitch.util.jax_names import ir, mlir

_T = TypeVar("_T")

ONLY_LOOKED_AT: ContextVar[bool] = ContextVar("jax_stitch_only_looked_at", default=False)
"""True where programs are anybody's HLO, compiled to be planned and never run: on some XLA ends its process. So they
are compiled for the CPU in another."""

ALIASING = "tf.aliasing_output"
"""The attribute of a donated parameter, in StableHLO: the number of the result that takes its memory."""


@dataclass(frozen=True, eq=False)
class Program:
    """A lowered function.

    Its entry takes ``constants`` (arrays that JAX made arguments, usually none), then one parameter for each argument,
    used or not, in order.
    """

    device: Device
    constants: tuple[Any, ...]
    _lowered: jax.stages.Lowered = field(repr=False)

    def text(self, options: Mapping[str, Option] | None = None) -> str:
        """Return optimized HLO text as compiled with these XLA options. Raises ``CaptureError``.

        What is only looked at may call functions that nobody has registered.
        """
        if not self.device.compiles_here:
            return compile_for(self.bytecode(), self.device, options)
        if self.device.target.is_host and ONLY_LOOKED_AT.get():
            return described_text(self.bytecode(), None, options or {})
        try:
            return full_text(self._compiled(options).runtime_executable())
        except CaptureError as error:
            described = self.device.target_config is not None and ONLY_LOOKED_AT.get()
            if unknown_call(str(error)) is None or not described:
                raise
            return described_text(self.bytecode(), self.device.target_config, options or {})

    def partitioned_text(
        self, attempts: Sequence[Mapping[str, Option]], placement: Placement
    ) -> tuple[str, Partitioning]:
        """Return ``first_text`` of each device's part of a program lowered for several, and how the program is split.

        For devices that are only described, ``placement`` must say all of that.
        """
        if not self.device.compiles_here:
            return self.first_text(attempts), placement.partitioning
        compiled = first_of(attempts, self._compiled)
        results = jax.tree.leaves(self._lowered.out_info)
        arguments = jax.tree.leaves(self._lowered.in_avals)
        given, returned = jax.tree.leaves(compiled.input_shardings), jax.tree.leaves(compiled.output_shardings)
        split = partitioning(
            placement, list(zip(given, arguments, strict=True)), list(zip(returned, results, strict=True))
        )
        return full_text(compiled.runtime_executable()), split

    def _compiled(self, options: Mapping[str, Option] | None) -> jax.stages.Compiled:
        try:
            return self._lowered.compile(compiler_options=cast(Any, dict(options or {}) or None))
        except jax.errors.JaxRuntimeError as error:
            raise CaptureError(f"XLA failed to compile for {self.device.name}: {error}") from error

    def default_text(self) -> str:
        """Return the optimized HLO text as ``jax.jit`` would have it compiled. Raise ``CaptureError``."""
        return self.first_text(default_options(self.device))

    def first_text(self, attempts: Sequence[Mapping[str, Option]]) -> str:
        """Return the text under the first of several option sets that XLA can compile with; its error under the last if
        with none.
        """
        return first_of(attempts, self.text)

    def stablehlo(self, names: bool = False) -> str:
        """Return the StableHLO module as text; with ``names``, also the names and source lines of its operations."""
        return self._lowered.as_text(debug_info=names)

    @property
    def callbacks(self) -> tuple[Callable[..., Any], ...]:
        """Return the Python functions that the program calls, by the numbers that its calls have. They take and return
        NumPy arrays, after a token where their calls have an order."""
        return tuple(self._lowered._lowering.compile_args["host_callbacks"])

    @property
    def results(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of what the entry returns."""
        return tuple(jax.ShapeDtypeStruct(r.shape, r.dtype) for r in jax.tree.leaves(self._lowered.out_info))

    @property
    def homes(self) -> Mapping[int, int]:
        """Return, by number of a donated parameter, the result that takes its memory. One that fits no result is
        in none.
        """
        (main,) = (f for f in _module(self._lowered).body.operations if str(f.attributes["sym_name"]) == '"main"')
        given = [k for k, type_ in enumerate(main.type.inputs) if not is_token(type_)]
        tokens = sum(map(is_token, main.type.results))
        by_parameter: dict[int, int] = {}
        for number, k in enumerate(given):
            attributes = main.arg_attrs[k] if "arg_attrs" in main.attributes else {}
            if ALIASING in attributes:
                by_parameter[number] = ir.IntegerAttr(attributes[ALIASING]).value - tokens
        return by_parameter

    def bytecode(self) -> bytes:
        """Return the StableHLO module as MLIR bytecode, for this version of jaxlib."""
        buffer = io.BytesIO()
        _module(self._lowered).operation.write_bytecode(buffer)
        return buffer.getvalue()


def lower(
    fun: Callable[..., Any],
    arguments: Sequence[jax.ShapeDtypeStruct],
    device: Device,
    placement: Placement | None = None,
    donated: Collection[int] = (),
) -> Program:
    """Lower a function of arrays (no pytrees, no PRNG keys) for a device, attached or not; also while JAX is tracing.

    With a ``placement`` it is lowered for all of its devices, which are of the kind of ``device``. ``donated`` are
    the arguments whose memory its results may take, by number. Raises
    ``CaptureError`` where the lowered entry's parameters are not those arguments one by one, after a token for each
    kind of effects that have an order.
    """
    options = _shardings(placement) | {"donate_argnums": tuple(donated)}
    traced = jax.jit(fun, keep_unused=True, **options).trace(*arguments)
    with warnings.catch_warnings() if donated else contextlib.nullcontext():
        if donated:  # JAX tells the user by itself what was donated in vain.
            warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        lowered = _lowered(traced, device, placement)
    # With jax_use_simplified_jaxpr_constants, JAX turns large constants into leading arguments and keeps them here.
    constants = tuple(lowered._lowering.const_args)
    _check_parameters(lowered, (*constants, *arguments))
    return Program(device, constants, lowered)


def _lowered(traced: jax.stages.Traced, device: Device, placement: Placement | None) -> jax.stages.Lowered:
    if not device.compiles_here:
        return traced.lower(lowering_platforms=("cuda",))
    if placement is not None:
        return traced.lower()
    with jax.default_device(jax.local_devices(backend=device.target.platform)[0]):
        return traced.lower()


def compile_for(bytecode: bytes, device: Device, options: Mapping[str, Option] | None = None) -> str:
    """Return the optimized HLO text of a StableHLO module (see ``Program.bytecode``) for a GPU that is only described.

    Raises ``CudaPluginMissing`` or ``CaptureError``.
    """
    if device.target_config is None:
        raise CaptureError(f"{device.name} has no description by which XLA could compile for it unattached")
    return described_text(bytecode, device.target_config, options or {})


def is_token(type_: Any) -> bool:
    """Return whether a type of StableHLO is that of tokens, by which operations with effects wait for one another."""
    return str(type_) == "!stablehlo.token"


def first_of(attempts: Sequence[Mapping[str, Option]], compile_with: Callable[[Mapping[str, Option]], _T]) -> _T:
    """Return what compiling gives under the first options that XLA can compile with; raise its error under the last if
    with none.
    """
    *first, last = attempts
    for options in first:
        with contextlib.suppress(CaptureError):
            return compile_with(options)
    return compile_with(last)


def _shardings(placement: Placement | None) -> dict[str, Any]:
    """Return the shardings as options of ``jax.jit``."""
    if placement is None:
        return {}
    options: dict[str, Any] = {"in_shardings": placement.arguments}
    if placement.results is not None:
        options["out_shardings"] = list(placement.results)
    return options


def _module(lowered: jax.stages.Lowered) -> Any:
    return lowered.compiler_ir("stablehlo")


def _check_parameters(lowered: jax.stages.Lowered, expected: Sequence[Any]) -> None:
    module = _module(lowered)
    (main,) = (f for f in module.body.operations if str(f.attributes["sym_name"]) == '"main"')
    with module.context:
        wanted = [(tuple(e.shape), str(mlir.dtype_to_ir_type(e.dtype))) for e in expected]
    inputs = [t for t in main.type.inputs if not is_token(t)]
    taken = [(tuple(t.shape), str(t.element_type)) for t in inputs]
    if taken != wanted:
        raise TypeError(f"the lowered program takes {taken}, not its arguments {wanted}")
