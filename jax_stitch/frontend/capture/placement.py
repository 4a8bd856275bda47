"""Functions over several devices: where their arguments lie, and how XLA's partitioner split the program between them.

The partitioned program is the same for every device, on that device's part of each argument. A ``shard_map`` over all
axes of a mesh is how JAX says that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from jax_stitch.frontend.capture.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Placement:
    """How the arguments of a function are spread over devices, of which ``devices`` are examples to compile for.

    One sharding for each argument, and for each result where ``results`` are given; None leaves it to XLA.
    """

    devices: tuple[Any, ...]
    arguments: tuple[NamedSharding | None, ...]
    results: tuple[NamedSharding | None, ...] | None = None

    @property
    def partitioning(self) -> Partitioning:
        """Return the same, of the compiled program, where nothing is left to XLA. Raises ``CaptureError``."""
        results = self.results if self.results is not None else (None,)
        said = [s for s in (*self.arguments, *results) if s is not None]
        meshes = tuple(dict.fromkeys(s.mesh for s in said))
        if len(said) < len(self.arguments) + len(results) or len(meshes) != 1:
            raise CaptureError("it is left to XLA how it is spread over devices, none of which is here")
        specs = [s.spec for s in said]
        return Partitioning(*meshes, tuple(specs[: len(self.arguments)]), tuple(specs[len(self.arguments) :]))

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """Return the meshes that the shardings speak of, each once."""
        return tuple(dict.fromkeys(_meshes((*self.arguments, *(self.results or ())))))


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a partitioned program's arguments and results are split over a mesh, evenly."""

    mesh: Mesh | AbstractMesh
    """Abstract where the program is only to be compiled, for devices that are not there."""
    arguments: tuple[PartitionSpec, ...]
    results: tuple[PartitionSpec, ...]

    @property
    def placement(self) -> Placement:
        """Return the same, of a program that is to be compiled."""
        arguments, results = (
            tuple(NamedSharding(self.mesh, s) for s in side) for side in (self.arguments, self.results)
        )
        devices = () if isinstance(self.mesh, AbstractMesh) else tuple(self.mesh.devices.flat)
        return Placement(devices, arguments, results)

    def argument_parts(self, avals: Sequence[jax.ShapeDtypeStruct]) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of one device's parts of arguments of these types."""
        return self._parts(avals, self.arguments)

    def result_parts(self, avals: Sequence[jax.ShapeDtypeStruct]) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of one device's parts of results of these types."""
        return self._parts(avals, self.results)

    def _parts(
        self, avals: Sequence[jax.ShapeDtypeStruct], specs: Sequence[PartitionSpec]
    ) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(
            jax.ShapeDtypeStruct(NamedSharding(self.mesh, spec).shard_shape(aval.shape), aval.dtype)
            for aval, spec in zip(avals, specs, strict=True)
        )

    def on_devices(self, run: Callable[[Sequence[Any]], list[Any]]) -> Callable[[Sequence[Any]], list[Any]]:
        """Return the function of whole arrays that runs ``run`` on each device's parts, on any devices in such a
        mesh.
        """
        each = jax.shard_map(
            lambda *parts: run(parts),
            mesh=self.mesh.abstract_mesh.update(axis_types=(AxisType.Auto,) * len(self.mesh.axis_names)),
            in_specs=self.arguments,
            out_specs=list(self.results),
            check_vma=False,  # Whether results agree between devices is settled: XLA made the program.
        )
        return lambda arrays: each(*arrays)


def partitioning(
    placement: Placement,
    arguments: Sequence[tuple[Sharding, jax.ShapeDtypeStruct]],
    results: Sequence[tuple[Sharding, jax.ShapeDtypeStruct]],
) -> Partitioning:
    """Return the shardings of a compiled program's arguments and results, said on one mesh.

    Raises ``CaptureError`` where no mesh has them all, or one is uneven.
    """
    meshes = dict.fromkeys((*placement.meshes, *_meshes(s for s, _ in (*arguments, *results))))
    candidates = sorted((m for m in meshes if m.size == len(placement.devices)), key=lambda m: -len(m.axis_names))
    if not candidates:
        candidates = [Mesh(np.array(placement.devices), ("devices",), axis_types=(AxisType.Auto,))]
    for mesh in candidates:
        specs = [_spec(sharding, mesh, aval) for sharding, aval in (*arguments, *results)]
        expressible = [spec for spec in specs if spec is not None]
        if len(expressible) == len(specs):
            return Partitioning(mesh, tuple(expressible[: len(arguments)]), tuple(expressible[len(arguments) :]))
    shown = ", ".join(dict.fromkeys(str(s) for s, _ in (*arguments, *results) if not s.is_fully_replicated))
    raise CaptureError(f"no one mesh has all the shardings of its arguments and results, evenly: {shown}")


def _meshes(shardings: Iterable[Sharding | None]) -> Iterator[Mesh]:
    for sharding in shardings:
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            yield sharding.mesh


def _spec(sharding: Sharding, mesh: Mesh, aval: jax.ShapeDtypeStruct) -> PartitionSpec | None:
    """Return what splits an array over a mesh as a sharding does, if something does."""
    rank = len(aval.shape)
    if sharding.is_fully_replicated:
        return PartitionSpec()
    if isinstance(sharding, NamedSharding) and sharding.mesh == mesh:
        return sharding.spec if _is_even(sharding, aval) else None
    for spec in _specs(mesh, rank):
        candidate = NamedSharding(mesh, spec, memory_kind=sharding.memory_kind)
        if sharding.is_equivalent_to(candidate, rank):
            return spec if _is_even(candidate, aval) else None
    return None


def _is_even(sharding: NamedSharding, aval: jax.ShapeDtypeStruct) -> bool:
    try:
        sharding.shard_shape(aval.shape)
    except ValueError:
        return False
    return True


def _specs(mesh: Mesh, rank: int) -> Iterator[PartitionSpec]:
    """Yield every way to split the dimensions of an array over some axes of a mesh."""
    for count in range(1, len(mesh.axis_names) + 1):
        for axes in itertools.permutations(mesh.axis_names, count):
            for places in itertools.combinations_with_replacement(range(rank), count):
                split = [tuple(a for a, place in zip(axes, places, strict=True) if place == d) for d in range(rank)]
                yield PartitionSpec(*(names or None for names in split))
