"""Whether shardings fit the shapes they split and the devices there are."""

from __future__ import annotations

from ..attributes import IotaTiles, Sharding
from ..shapes import ArrayShape, Shape, TupleShape


def sharding_fault(sharding: Sharding, shape: Shape, devices: int) -> str:
    """Return what is wrong, or "". ``devices`` is how many there are, 1 if the module does not say."""
    if sharding.kind == "tuple":
        leaves = _leaves(shape)
        if shape == TupleShape(()) and not sharding.elements:
            return ""
        if len(sharding.elements) != len(leaves):
            return f"the sharding has {len(sharding.elements)} parts, the shape {len(leaves)}"
        faults = (sharding_fault(e, s, devices) for e, s in zip(sharding.elements, leaves, strict=True))
        return next(filter(None, faults), "")
    if sharding.kind == "maximal":
        device = sharding.devices[0] if isinstance(sharding.devices, tuple) else 0
        return f"the sharding names device {device} of {devices}" if device < 0 or 1 < devices <= device else ""
    if sharding.kind != "tiled":
        return ""
    count = 1
    for tiles in sharding.tile_dims:
        count *= tiles
    if isinstance(sharding.devices, IotaTiles):
        numbers: tuple[int, ...] = sharding.devices.numbers() if count < 1 << 20 else ()
    else:
        numbers = sharding.devices
    if len(numbers) != count and count < 1 << 20:
        return f"the sharding has {count} tiles and {len(numbers)} devices"
    if len(set(numbers)) != len(numbers):
        return "the sharding names a device twice"
    if devices > 1 and numbers and not 0 <= min(numbers) <= max(numbers) < devices:
        wrong = next(n for n in numbers if not 0 <= n < devices)
        return f"the sharding names device {wrong} of {devices}"
    subgroups = int(sharding.replicate_last) + len(sharding.last_tile_dims)
    rank = len(sharding.tile_dims) - subgroups
    for leaf in _leaves(shape):
        if isinstance(leaf, ArrayShape) and leaf.rank != rank:
            return f"the sharding splits {rank} dimensions, the shape {leaf} has {leaf.rank}"
    return ""


def _leaves(shape: Shape) -> list[Shape]:
    """Return the parts of nested tuples that are none; XLA counts an empty tuple as one."""
    if not isinstance(shape, TupleShape):
        return [shape]
    return [leaf for element in shape.elements for leaf in _leaves(element)] or [shape]
