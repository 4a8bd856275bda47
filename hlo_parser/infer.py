"""The shape of an instruction that is written without one, from its operands and attributes, as XLA infers it.

The verifier's rules say which shape a result must have. They are run here on an operation whose result is not known
yet: the first shape that a rule expects becomes it. Layouts too are XLA's: where a shape is that of an operand it
keeps the operand's layout, and a new shape has none, which means the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .dtypes import ELEMENT_TYPES
from .model import Computation, Instruction
from .opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, words
from .shapes import ArrayShape, Layout, Shape, TokenShape, TupleShape, without_layout
from .values import FrozenDict
from .verifier.numeric_rules import WHOLES, check_kind
from .verifier.rules import RULES, Broken, NotJudged, Operation, without_dynamic

__all__ = ["INFERABLE", "CannotInfer", "infer_shape"]


class CannotInfer(Exception):
    """Why no shape follows."""


def infer_shape(
    opcode: str, operands: tuple[Shape, ...], attributes: Mapping[str, Any], computations: Mapping[str, Computation]
) -> Shape:
    """Return the shape of the result. Raises CannotInfer."""
    instruction = Instruction("", opcode, TokenShape(), (), FrozenDict(attributes))
    op = _Inferring(instruction, tuple(without_dynamic(without_layout(s)) for s in operands), computations)
    try:
        known = _SPECIAL.get(opcode)
        if known is not None:
            return known(op, operands)
        RULES[opcode](op)
        return _LAYOUTS.get(opcode, _no_layout)(op.inferred(), operands, attributes)
    except Broken as broken:
        raise CannotInfer(str(broken)) from None
    except NotJudged:
        raise CannotInfer("an attribute is in a notation that is not known") from None
    except (IndexError, ValueError, KeyError, AttributeError):
        raise CannotInfer("its operands and attributes do not fit together") from None


class _Inferring(Operation):
    """An operation that takes the first shape expected of its result for it."""

    __slots__ = ()

    @property
    def result(self) -> Shape:
        return self.instruction.shape

    def expect_result(self, expected: Shape) -> None:
        if self.instruction.shape == TokenShape():
            object.__setattr__(self, "instruction", replace(self.instruction, shape=expected))
        super().expect_result(expected)

    def expect_dims(self, dims: tuple[int, ...], dtype: str | None = None) -> None:
        # Where a rule leaves the type open, XLA takes the wider of the operands'.
        wider = _wider(self.array(0).dtype, self.array(1).dtype) if dtype is None else dtype
        self.expect_result(ArrayShape(wider, dims))

    def inferred(self) -> Shape:
        return self.instruction.shape


def _wider(a: str, b: str) -> str:
    """Return the type of a result of operands of two types, which must be floats where they differ."""
    x, y = ELEMENT_TYPES[a], ELEMENT_TYPES[b]
    return b if y.bits > x.bits else a


_Layouts = Callable[[Shape, tuple[Shape, ...], Mapping[str, Any]], Shape]


def _no_layout(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    return shape


def _like(index: int) -> _Layouts:
    """Return the layout and the dynamic dimensions of an operand."""

    def kept(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
        source = operands[index]
        if not (isinstance(shape, ArrayShape) and isinstance(source, ArrayShape)):
            return source
        return replace(shape, layout=source.layout, dynamic=source.dynamic)

    return kept


def _first_like(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape whose first part, of a tuple, has the layout of the first operand."""
    assert isinstance(shape, TupleShape)
    return TupleShape((operands[0], *shape.elements[1:]))


def _all_like(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of an operation whose parts are its operands."""
    parts = len(shape.elements) if isinstance(shape, TupleShape) else 1
    return TupleShape(operands[:parts]) if isinstance(shape, TupleShape) else operands[0]


def _transposed(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    """Return a layout in which nothing moves."""
    source, order = operands[0], attributes["dimensions"]
    if not (isinstance(shape, ArrayShape) and isinstance(source, ArrayShape)) or not order:
        return shape
    layout = source.layout or Layout(tuple(reversed(range(source.rank))))
    now = replace(layout, minor_to_major=tuple(order.index(d) for d in layout.minor_to_major))
    return replace(shape, layout=now, dynamic=tuple(source.dynamic[d] for d in order) if source.dynamic else ())


def _element(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    source = operands[0]
    return source.elements[attributes["index"]] if isinstance(source, TupleShape) else shape


def _selected(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    which = operands[0]
    return _like(0 if isinstance(which, ArrayShape) and which.rank else 1)(shape, operands, attributes)


def _reduced(shape: Shape, operands: tuple[Shape, ...], attributes: Mapping[str, Any]) -> Shape:
    source = operands[0]
    if not (isinstance(source, ArrayShape) and source.dynamic and isinstance(shape, ArrayShape)):
        return shape
    dynamic = tuple(d for n, d in enumerate(source.dynamic) if n not in attributes["dimensions"])
    return replace(shape, dynamic=dynamic if any(dynamic) else ())


_KEPT = ELEMENTWISE_UNARY - words("convert reduce-precision")
_KEPT_BY_OTHERS = words("copy domain reverse shuffle fft cholesky scatter while add-dependency select-and-scatter")
_LAYOUTS: dict[str, _Layouts] = {
    **dict.fromkeys(_KEPT, _like(0)),
    **dict.fromkeys(_KEPT_BY_OTHERS, _like(0)),
    **dict.fromkeys(words("clamp triangular-solve"), _like(1)),
    **dict.fromkeys(words("tuple sort"), _all_like),
    "batch-norm-grad": _first_like,
    "batch-norm-inference": _like(0),
    "batch-norm-training": _first_like,
    "get-tuple-element": _element,
    "reduce": _reduced,
    "select": _selected,
    "transpose": _transposed,
}


def _binary(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    """Infer an elementwise operation of two operands: XLA lets scalars and dimensions of size 1 stand for larger
    ones.
    """
    opcode = op.instruction.opcode
    x, y = op.arrays()
    floats = all(ELEMENT_TYPES[s.dtype].kind == "float" for s in (x, y))
    op.require(x.dtype == y.dtype or floats, f"the operands {x} and {y} differ in type")
    left = operands[0]
    assert isinstance(left, ArrayShape)
    if opcode in ("compare", "complex"):
        op.require(x.dims == y.dims, f"the operands {x} and {y} differ in dimensions")
        if opcode == "compare":
            return replace(left, dtype="pred")
        op.require(x.dtype in WHOLES, f"complex takes f32 or f64, not {x.dtype}")
        return replace(left, dtype=WHOLES[x.dtype])
    check_kind(op, x.dtype)
    if x.dims == y.dims:
        return replace(left, dtype=_wider(x.dtype, y.dtype))
    if x.rank and y.rank:
        fits = x.rank == y.rank and all(a == b or 1 in (a, b) for a, b in zip(x.dims, y.dims, strict=True))
        op.require(fits, f"the operands {x} and {y} differ in dimensions")
        dims = tuple(b if a == 1 else a for a, b in zip(x.dims, y.dims, strict=True))
    else:
        dims = x.dims or y.dims
    dynamic = [s.dynamic for s in operands if isinstance(s, ArrayShape) and s.dynamic and len(s.dynamic) == len(dims)]
    merged = tuple(any(d) for d in zip(*dynamic, strict=True)) if dynamic else ()
    return ArrayShape(_wider(x.dtype, y.dtype), dims, None, merged)


def _broadcast(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    """Infer a broadcast: XLA takes the dimensions for the sizes of new leading ones."""
    x, sizes = op.array(0), op.get("dimensions", ())
    return ArrayShape(x.dtype, (*sizes, *x.dims))


def _with_dynamic(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    x, axes = operands[0], op.get("dimensions")
    rank = op.array(0).rank
    op.require(len(axes) == 1, f"dimensions {axes} must name one")
    op.check_axes(axes, rank, "dimensions")
    op.require(op.operands[1] == ArrayShape("s32", ()), f"the size should be s32[], not {op.operands[1]}")
    assert isinstance(x, ArrayShape)
    dynamic = x.dynamic or (False,) * rank
    return replace(x, dynamic=tuple(d or n == axes[0] for n, d in enumerate(dynamic)))


def _checked(op: Operation, shape: Shape) -> Shape:
    """Return the shape, if the operation's rule accepts it."""
    plain = without_dynamic(without_layout(shape))
    RULES[op.instruction.opcode](Operation(replace(op.instruction, shape=plain), op.operands, op.computations))
    return shape


def _call(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    return _checked(op, op.called("to_apply").root.shape)


def _conditional(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    name = op.get("true_computation") if op.has("true_computation") else op.get("branch_computations")[0]
    return _checked(op, op.computations[name].root.shape)


def _map(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    out = op.called("to_apply").root.shape
    if not (isinstance(out, ArrayShape) and op.has("dimensions")):
        op.fail("needs dimensions= and a to_apply= that returns a scalar")
    return _checked(op, ArrayShape(out.dtype, op.array(0).dims))


def _scan(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    """Infer a scan: carries as they are, stacked results with the dimension that is scanned."""
    carries, (axis,) = op.get("num_carries"), op.get("dimensions")
    op.require(len(operands) > carries, "a scan with no inputs has no size")
    size = op.array(0).dims[axis]

    def stacked(shape: Shape) -> Shape:
        if not isinstance(shape, ArrayShape):
            op.fail(f"a stacked result must be an array, not {shape}")
        return ArrayShape(shape.dtype, (*shape.dims[:axis], size, *shape.dims[axis:]))

    root = op.called("to_apply").root.shape
    if not isinstance(root, TupleShape):
        return root if carries else stacked(root)
    count = len(root.elements) - carries
    return TupleShape(tuple(stacked(s) if n < count else s for n, s in enumerate(root.elements)))


def _scaled_dot(op: Operation, operands: tuple[Shape, ...]) -> Shape:
    """Infer a scaled product: XLA takes the first and the third operand for the factors."""
    factors = _Inferring(op.instruction, (op.operands[0], op.operands[2]), op.computations)
    RULES["dot"](factors)
    return factors.inferred()


_SPECIAL: dict[str, Callable[[Operation, tuple[Shape, ...]], Shape]] = {
    **dict.fromkeys(ELEMENTWISE_BINARY - words("stochastic-convert"), _binary),
    "broadcast": _broadcast,
    "call": _call,
    "conditional": _conditional,
    "map": _map,
    "scaled-dot": _scaled_dot,
    "scan": _scan,
    "set-dimension-size": _with_dynamic,
}

INFERABLE = (
    _LAYOUTS.keys()
    | _SPECIAL.keys()
    | words("""after-all concatenate convolution dot gather get-dimension-size pad partition-id ragged-dot reduce-window
        replica-id topk""")
)
"""The operations that may be written without a shape."""
