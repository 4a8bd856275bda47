"""Layouts of a module that has them: of what is passed on without being moved, both ends must agree."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Computation, Instruction, Module
from ..shapes import ArrayShape, Shape, TupleShape
from .fault import Fault


def layout_faults(module: Module) -> Iterator[Fault]:
    """Yield faults of a scheduled module, in which XLA has chosen all layouts; before that they mean nothing yet."""
    if module.attributes.get("is_scheduled") is not True:
        return
    for c in module.computations:
        for i in c:
            for what, mine, theirs in _ends(module, c, i):
                if not _agree(mine, theirs):
                    yield Fault(f"its layout {mine} is not that of {what}, {theirs}", c.name, i.name)


def _ends(module: Module, c: Computation, i: Instruction) -> Iterator[tuple[str, Shape, Shape]]:
    shapes = [c[name].shape for name in i.operands]
    match i.opcode:
        case "tuple" if isinstance(i.shape, TupleShape):
            for n, (part, shape) in enumerate(zip(i.shape.elements, shapes, strict=False)):
                yield f"operand {n}", part, shape
        case "get-tuple-element" if shapes and isinstance(shapes[0], TupleShape):
            yield "the tuple's part", i.shape, shapes[0].elements[i.attributes["index"]]
        case "fusion" | "call":
            body = module.computation(i.attributes["calls" if i.opcode == "fusion" else "to_apply"])
            yield f"the root of %{body.name}", i.shape, body.root.shape
            for n, (shape, parameter) in enumerate(zip(shapes, body.parameters, strict=False)):
                yield f"parameter {n} of %{body.name} for its operand", shape, parameter.shape
        case "while" if shapes:
            body = module.computation(i.attributes["body"])
            yield "its operand", i.shape, shapes[0]
            yield f"the root of %{body.name}", i.shape, body.root.shape


def _agree(a: Shape, b: Shape) -> bool:
    """Return whether the dimensions are in the same order wherever both sides have a layout."""
    if isinstance(a, TupleShape) and isinstance(b, TupleShape):
        return all(_agree(x, y) for x, y in zip(a.elements, b.elements, strict=False))
    if isinstance(a, ArrayShape) and isinstance(b, ArrayShape) and a.layout is not None and b.layout is not None:
        sizes = [d for d in a.layout.minor_to_major if d < a.rank and a.dims[d] != 1]
        return sizes == [d for d in b.layout.minor_to_major if d < b.rank and b.dims[d] != 1]
    return True
