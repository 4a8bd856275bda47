"""Programs for several devices: the part that each of them runs, as a function that can be planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Partitioning, Placement, analysis_options
from jax_stitch.frontend.capture.errors import CaptureError, HloFileError
from jax_stitch.frontend.capture.given import Given
from jax_stitch.frontend.capture.options import default_options
from jax_stitch.frontend.capture.program import compile_for, first_of
from jax_stitch.frontend.capture.worker import compile_for_devices
from jax_stitch.frontend.hlo_files.program import HloProgram
from jax_stitch.graph.rewrites.library_calls import hides_operations
from jax_stitch.util.jax_names import ir, mlir

_AXIS = "devices"


@dataclass(frozen=True, slots=True)
class Part:
    """What to plan for each of several devices: a function of whole arrays, their types, and how they are spread.

    How the program's own arrays are spread is not said in what XLA's partitioner has made of them: here a whole array
    is the parts of all devices, one after the other, and scalars are the same everywhere.
    """

    function: Callable[..., Any]
    types: tuple[jax.ShapeDtypeStruct, ...]
    placement: Placement


def part_of(program: HloProgram, device: Device, reread: Callable[[str], HloProgram]) -> Part:
    """Return one device's part of a program for several. ``reread`` makes a program of optimized text.

    Raises HloFileError where so many devices have to be there and are not, CaptureError where XLA fails.
    """
    mesh = _mesh(program, device)
    default = program.own_text
    if not program.optimized:
        default = _partitioned(program, device, default_options(device))
        hides = hides_operations(default)
        program = reread(_partitioned(program, device, analysis_options(device)) if hides else default)
    given = Given(program.name, program.stablehlo, program.results, program.text, default)
    arguments, results = (tuple(map(_spec, types)) for types in (program.parameters, program.results))
    split = Partitioning(mesh, arguments, results)
    whole = split.on_devices(lambda parts: given(*parts))

    def run(*arrays: Any) -> list[Any]:
        return whole(arrays)

    run.__name__ = run.__qualname__ = program.name
    types = tuple(_whole(t, mesh.size) for t in program.parameters)
    return Part(run, types, split.placement)


def _mesh(program: HloProgram, device: Device) -> Mesh | AbstractMesh:
    count, automatic = program.partitions, (AxisType.Auto,)
    if not device.compiles_here:
        return AbstractMesh((count,), (_AXIS,), axis_types=automatic)
    here = jax.devices(device.target.platform)
    if len(here) < count:
        raise HloFileError(
            f"{program.where} is for {count} devices, and here is {len(here)} {device.name}: plan it for a GPU that is "
            f"only described (device='h200'),\nor start Python with JAX_NUM_CPU_DEVICES={count}"
        )
    return Mesh(np.array(here[:count]), (_AXIS,), axis_types=automatic)


def _partitioned(program: HloProgram, device: Device, attempts: Sequence[Mapping[str, Any]]) -> str:
    """Return the optimized HLO of one device's part."""
    with mlir.make_ir_context():
        module = ir.Module.parse(program.stablehlo)
        number = ir.IntegerType.get_signless(32)
        module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(number, program.partitions)
        text = module.operation.get_asm(enable_debug_info=True).encode()

    def compiled(options: Mapping[str, Any]) -> str:
        if not device.compiles_here:
            return compile_for(text, device, options)
        here = jax.devices(device.target.platform)[: program.partitions]
        try:
            return compile_for_devices(text, here, list(options.items()))
        except jax.errors.JaxRuntimeError as error:
            raise CaptureError(f"XLA failed to compile for {device.name}: {error}") from error

    return first_of(attempts, compiled)


def _spec(type_: jax.ShapeDtypeStruct) -> PartitionSpec:
    return PartitionSpec(_AXIS) if type_.shape else PartitionSpec()


def _whole(type_: jax.ShapeDtypeStruct, count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((type_.shape[0] * count, *type_.shape[1:]) if type_.shape else (), type_.dtype)
