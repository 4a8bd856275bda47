"""Where the operands of an operation lie, read from the program that is being lowered around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from jax_stitch.frontend.capture import Capture, CaptureError, Placement
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.frontend.capture.support import equations
from jax_stitch.util.jax_names import ClosedJaxpr, mlir, sdy

NO_MESH = AbstractMesh((), ())
"""The context of a function that is not under any mesh."""


@dataclass(frozen=True, slots=True)
class Inside:
    """In a ``shard_map`` over all axes of ``mesh``: the operation is one device's part already.

    The parts of an argument or a result, one below the other as rows, make an array that is split over the axes along
    which they vary. Those are known where ``checked`` (``check_vma``); else they are all axes.
    """

    mesh: Mesh
    checked: bool
    arguments: tuple[PartitionSpec, ...]
    results: tuple[PartitionSpec, ...]


OperandShardings = Placement | Inside | None
"""None: on one device."""


def operand_shardings(context: Any, operands: Sequence[Any]) -> OperandShardings:
    """Return where the operands of the operation lie that is lowered in a ``LoweringRuleContext``.

    Raises ``Unstitchable`` where that is known only after lowering.
    """
    axes = context.module_context.axis_context
    if isinstance(axes, mlir.SPMDAxisContext):
        return _inside(context, axes.mesh, axes.manual_axes)
    if axes.num_devices == 1:
        return None
    devices = _devices(context, axes.num_devices)
    arguments = [
        _explicit(aval, devices) or _of_value(n, value, aval, devices)
        for n, (value, aval) in enumerate(zip(operands, context.avals_in, strict=True))
    ]
    results = tuple(_explicit(aval, devices) for aval in context.avals_out)
    return Placement(devices, tuple(arguments), results if any(results) else None)


def around(
    fun: Callable[..., list[Any]], types: Sequence[jax.ShapeDtypeStruct], where: OperandShardings
) -> tuple[Callable[..., list[Any]], Sequence[jax.ShapeDtypeStruct], Placement | None]:
    """Return what to capture for a function of arrays of these types with these shardings: a function, the types of its
    arguments, and where they lie.

    Inside a ``shard_map`` it is one around the function in which each device's part is a row of a whole array.
    """
    if not isinstance(where, Inside):
        return fun, types, where
    mesh = where.mesh
    shardings = tuple(NamedSharding(mesh, spec) for spec in where.arguments)
    stacked = [
        jax.ShapeDtypeStruct(
            (mesh.size // sharding.shard_shape((mesh.size,))[0], *t.shape), t.dtype, weak_type=t.weak_type
        )
        for t, sharding in zip(types, shardings, strict=True)
    ]

    def each(*rows: Any) -> list[Any]:
        return [result[None] for result in fun(*(row[0] for row in rows))]

    def whole(*arrays: Any) -> list[Any]:
        out = list(where.results)
        return jax.shard_map(each, mesh=mesh, in_specs=where.arguments, out_specs=out, check_vma=where.checked)(*arrays)

    return whole, stacked, Placement(tuple(mesh.devices.flat), shardings)


@contextmanager
def in_own_mesh(jaxpr: ClosedJaxpr, arrays: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Trace a function that has a ``shard_map`` inside as its caller did, and yield its arguments.

    On a mesh of explicit axes their types say where arrays lie, and ``shard_map`` takes it from there.
    """
    meshes = [a.sharding.mesh for a in jaxpr.in_avals if AxisType.Explicit in a.sharding.mesh.axis_types]
    if not meshes or not any(equation.primitive.name == "shard_map" for equation in equations(jaxpr.jaxpr)):
        yield arrays
        return
    with jax.sharding.use_abstract_mesh(meshes[0]):
        yield [jax.sharding.reshard(x, a.sharding) for x, a in zip(arrays, jaxpr.in_avals, strict=True)]


def at(
    run: Callable[[Sequence[Any]], list[Any]], captured: Capture, where: OperandShardings
) -> Callable[..., list[Any]]:
    """Return the rebuilt program of a function captured with these shardings, as a function of the arrays that it
    had.
    """
    split = captured.partitioning
    here = run
    if isinstance(where, Inside):
        here = _unstacked(run, captured, where)
    elif split is not None:
        here = split.on_devices(run)
    return lambda *arrays: list(captured.unflatten(here(captured.flatten(arrays))))


def _unstacked(
    run: Callable[[Sequence[Any]], list[Any]], captured: Capture, where: Inside
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the program of one row of each array, as a function of the parts that the rows are."""
    constants = len(captured.constants)
    split = captured.partitioning
    expected = (*[PartitionSpec()] * constants, *where.arguments), where.results
    if split is None or (split.arguments, split.results) != expected:
        raise CaptureError(f"XLA split the parts of devices as {split}, not {expected}")

    def of_parts(arrays: Sequence[Any]) -> list[Any]:
        rows = [*arrays[:constants], *(array[None] for array in arrays[constants:])]
        return [result[0] for result in run(rows)]

    return of_parts


def _devices(context: Any, count: int) -> tuple[Any, ...]:
    """Return any devices to compile for: JAX lowers a program for so many of a kind, not for these or those."""
    (platform,) = context.module_context.platforms
    present = jax.devices(platform)
    if len(present) < count:
        raise Unstitchable(f"it is lowered for {count} devices, of which {len(present)} are here")
    return tuple(present[:count])


def _inside(context: Any, mesh: Any, manual_axes: frozenset[Any]) -> Inside | None:
    if mesh.size == 1:
        return None
    left = [name for name, size in mesh.shape.items() if size > 1 and name not in manual_axes]
    if left:
        raise Unstitchable(f"it is in a shard_map that leaves {', '.join(map(repr, left))} of its mesh's axes to XLA")
    varying = [
        [getattr(a.manual_axis_type, "varying", ()) for a in avals] for avals in (context.avals_in, context.avals_out)
    ]
    checked = any(axes for side in varying for axes in side)

    def rows(axes: Any) -> PartitionSpec:
        names = [name for name in mesh.axis_names if name in axes or not checked]
        return PartitionSpec(tuple(names)) if names else PartitionSpec()

    here = _mesh(_devices(context, mesh.size), tuple(mesh.shape.items()))
    return Inside(here, checked, *(tuple(map(rows, side)) for side in varying))


def _explicit(aval: Any, devices: tuple[Any, ...]) -> NamedSharding | None:
    """Return the sharding in a type, where the axes of its mesh are explicit: it is all there is to say."""
    mesh = aval.sharding.mesh
    if mesh.empty or mesh.size == 1 or AxisType.Explicit not in mesh.axis_types:
        return None
    if set(mesh.axis_types) != {AxisType.Explicit}:
        raise Unstitchable(f"its mesh has axes that are explicit and axes that are not ({mesh})")
    return NamedSharding(_mesh(devices, mesh.shape_tuple), aval.sharding.spec)


def _of_value(n: int, value: Any, aval: Any, devices: tuple[Any, ...]) -> NamedSharding | None:
    """Return the sharding that is written at a value, None if it is left to XLA."""
    owner = value.owner
    rank = len(aval.shape)
    if isinstance(owner, mlir.ir.Block):
        function = owner.owner
        if "sym_name" in function.attributes and str(function.attributes["sym_name"]) == '"main"':
            attributes = mlir.ir.ArrayAttr(function.attributes["arg_attrs"])[value.arg_number]
            if "sdy.sharding" not in attributes:
                return None
            return _sharding(attributes["sdy.sharding"], _module_of(function), rank, devices)
    elif owner.name == "sdy.sharding_constraint":
        return _sharding(owner.attributes["sharding"], _module_of(owner), rank, devices)
    elif owner.name == "sdy.manual_computation":
        written = sdy.TensorShardingPerValueAttr(owner.attributes["out_shardings"]).shardings
        return _sharding(written[value.result_number], _module_of(owner), rank, devices)
    elif owner.name == "stablehlo.constant":
        return None
    if rank == 0:
        return None
    raise Unstitchable(
        f"how XLA will split its argument {n} ({aval.str_short()}) over the devices is not known when it is lowered: "
        "stitch the outermost function, or give the argument jax.lax.with_sharding_constraint"
    )


def _module_of(operation: Any) -> Any:
    while operation.name != "builtin.module":
        operation = operation.parent
    return operation


def _sharding(attribute: Any, module: Any, rank: int, devices: tuple[Any, ...]) -> NamedSharding:
    written = sdy.TensorShardingAttr(attribute)
    described = _described_mesh(written.mesh_or_ref, module)
    if list(described.device_ids):
        raise Unstitchable("its arguments are on meshes that order the devices differently")
    axes = [sdy.MeshAxisAttr(a) for a in described.axes]
    if not axes:  # as JAX says "on every device" without a mesh
        return NamedSharding(_mesh(devices, [("devices", len(devices))]), PartitionSpec())
    mesh = _mesh(devices, [(a.name, a.size) for a in axes])
    split = []
    for dimension in list(written.dimension_shardings)[:rank]:  # A PRNG key has dimensions more than it shows.
        entry = sdy.DimensionShardingAttr(dimension)
        names = [sdy.AxisRefAttr(axis) for axis in entry.axes]
        if not entry.is_closed or any(name.sub_axis_info is not None for name in names):
            raise Unstitchable(f"an argument has a sharding that no PartitionSpec says ({attribute})")
        split.append(tuple(name.name for name in names) or None)
    return NamedSharding(mesh, PartitionSpec(*split))


def _described_mesh(reference: Any, module: Any) -> Any:
    if sdy.MeshAttr.isinstance(reference):
        return sdy.MeshAttr(reference)
    name = mlir.ir.FlatSymbolRefAttr(reference).value
    for operation in module.regions[0].blocks[0].operations:
        if operation.operation.name == "sdy.mesh" and str(operation.attributes["sym_name"]) == f'"{name}"':
            return sdy.MeshAttr(operation.attributes["mesh"])
    raise Unstitchable(f"the program has no mesh {name!r}")


def _mesh(devices: tuple[Any, ...], shape: Sequence[tuple[Any, int]], types: Sequence[AxisType] | None = None) -> Mesh:
    names = tuple(name for name, _ in shape)
    kinds = tuple(types or (AxisType.Auto,) * len(names))
    return Mesh(np.array(devices).reshape([size for _, size in shape]), names, axis_types=kinds)
