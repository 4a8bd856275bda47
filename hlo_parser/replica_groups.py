"""Which devices take part in a collective together, in XLA's three notations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .attributes import IotaTiles
from .reading.attribute import read_ints, read_iota, read_list, read_order
from .reading.scan import Scanner
from .values import Verbatim, transposed


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis of a mesh, or a factor of it: of an axis of size n, seen as [pre, size, n / (pre * size)], the middle
    one."""

    name: str
    pre: int = 1
    size: int | None = None

    def __str__(self) -> str:
        return f"'{self.name}'" + (f":({self.pre}){self.size}" if self.size is not None else "")


@dataclass(frozen=True, slots=True)
class MeshAxes:
    """``mesh['a'=2,'b'=4] {'a'}``: devices that differ only in the axes listed work together.

    ``devices``, if the mesh is not numbered row-major, are its device numbers in that order: listed, or as an
    ``IotaTiles`` whose ``dims`` are its transposed ``reshape``.
    """

    mesh: tuple[tuple[str, int], ...]
    devices: tuple[int, ...] | IotaTiles | None
    axes: tuple[AxisRef, ...]

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the device numbers of each group."""
        sizes = dict(self.mesh)
        numbers: Sequence[int] = range(math.prod(size for _, size in self.mesh))
        if self.devices is not None:
            numbers = self.devices.numbers() if isinstance(self.devices, IotaTiles) else self.devices
        # Each axis as its factors between the places where a listed one begins or ends.
        factors: list[tuple[str, int, int]] = []
        for name, size in self.mesh:
            cuts = {1, size}
            for axis in self.axes:
                if axis.name == name and axis.size is not None:
                    cuts |= {axis.pre, axis.pre * axis.size}
            edges = sorted(cuts)
            factors += [(name, low, high // low) for low, high in itertools.pairwise(edges)]
        grouped = []
        for axis in self.axes:
            end = axis.pre * (axis.size if axis.size is not None else sizes[axis.name])
            grouped += [
                k for k, (name, low, n) in enumerate(factors) if name == axis.name and axis.pre <= low < low * n <= end
            ]
        apart = [k for k in range(len(factors)) if k not in grouped]
        split = tuple(transposed(numbers, [n for _, _, n in factors], [*apart, *grouped]))
        return _rows(split, math.prod(factors[k][2] for k in grouped))

    def __str__(self) -> str:
        devices = ""
        if isinstance(self.devices, IotaTiles):
            devices = f", device_ids=({str(self.devices).split('<=')[1]})"
        elif self.devices is not None:
            devices = f", device_ids=({','.join(map(str, self.devices))})"
        mesh = ",".join(f"'{name}'={size}" for name, size in self.mesh)
        return f"mesh[{mesh}]{devices} {{{','.join(map(str, self.axes))}}}"


def _rows(values: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Return the values in groups of so many."""
    return tuple(values[n : n + size] for n in range(0, len(values), size)) if size else ()


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Which devices work together: listed (``{{0,1},{2,3}}``), as ``IotaTiles`` of shape [groups, size], or by
    ``MeshAxes``."""

    listed: tuple[tuple[int, ...], ...] = ()
    iota: IotaTiles | None = None
    mesh: MeshAxes | None = None

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups, in whichever notation they were written; empty for one group of all devices."""
        if self.mesh is not None:
            return self.mesh.groups()
        if self.iota is not None:
            return _rows(self.iota.numbers(), self.iota.dims[-1])
        return self.listed

    def __str__(self) -> str:
        if self.iota is not None or self.mesh is not None:
            return str(self.iota if self.iota is not None else self.mesh)
        return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in self.listed) + "}"


def read_replica_groups(s: Scanner) -> ReplicaGroups | Verbatim:
    """Return the groups, or their text in a notation not known here."""
    start = s.skip()
    if s.at("{"):
        return ReplicaGroups(read_list(s, read_ints, "replica groups"))
    if s.at("["):
        iota = read_iota(s)
        if iota is not None:
            return ReplicaGroups(iota=iota)
    elif s.accept("mesh["):
        return ReplicaGroups(mesh=_mesh_axes(s))
    s.pos = start
    return s.verbatim()


def _mesh_axes(s: Scanner) -> MeshAxes:
    """Read what follows ``mesh[``."""
    at = s.pos
    mesh: list[tuple[str, int]] = []
    while not s.accept("]"):
        if mesh:
            s.expect(",", "or ']' in a mesh")
        name = s.string("an axis in quotes, such as 'axis_0'=2")
        s.expect("=", "after the axis of a mesh")
        mesh.append((name, s.integer("the size of the axis")))
    devices: tuple[int, ...] | IotaTiles | None = None
    if s.accept(","):
        s.expect("device_ids=", "after a mesh")
        s.expect("(", "to begin the device numbers")
        devices = read_order(s)
        s.expect(")", "to end the device numbers")
    count = math.prod(size for _, size in mesh)
    given = count if devices is None else len(devices.numbers() if isinstance(devices, IotaTiles) else devices)
    if given != count:
        s.error(f"{given} device numbers for a mesh of {count}", at)
    return MeshAxes(tuple(mesh), devices, read_list(s, lambda s: _axis(s, dict(mesh)), "mesh axes"))


def _axis(s: Scanner, mesh: dict[str, int]) -> AxisRef:
    at = s.skip()
    name = s.string("an axis in quotes")
    if name not in mesh:
        s.error(f"the mesh has no axis {name!r}", at)
    if not s.accept(":"):
        return AxisRef(name)
    s.expect("(", "to begin what an axis factor leaves before it")
    pre = s.integer("a size")
    s.expect(")", "after the size before an axis factor")
    size = s.integer("the size of an axis factor")
    if pre < 1 or size < 1 or mesh[name] % (pre * size):
        s.error(f"({pre}){size} is no factor of the axis {name!r} of size {mesh[name]}", at)
    return AxisRef(name, pre, size)
