"""Rules of operations that call computations."""

from __future__ import annotations

from ..attributes import Window
from ..dtypes import ELEMENT_TYPES
from ..model import Computation
from ..shapes import ArrayShape, Shape, TupleShape
from .numeric_rules import windowed_size
from .rules import Operation, parameters, result, rule


def _check_call(op: Operation, c: Computation, arguments: tuple[Shape, ...], expected: Shape) -> None:
    shapes = parameters(c)
    op.require(len(shapes) == len(arguments), f"%{c.name} has {len(shapes)} parameters, not {len(arguments)}")
    for n, (parameter, argument) in enumerate(zip(shapes, arguments, strict=True)):
        op.require(parameter == argument, f"parameter {n} of %{c.name} is {parameter}, not {argument}")
    op.require(result(c) == expected, f"%{c.name} returns {result(c)}, not {expected}")


@rule("call", "fusion", "async-start")
def _call(op: Operation) -> None:
    opcode = op.instruction.opcode
    key = "to_apply" if opcode == "call" else "calls"
    if opcode != "async-start":
        _check_call(op, op.called(key), op.operands, op.result)
        return
    out = op.result
    if not (isinstance(out, TupleShape) and len(out.elements) >= 2 and out.elements[0] == TupleShape(op.operands)):
        op.fail(f"the result should begin with the operands' shapes as a tuple and the output's, not be {out}")
    if op.has(key) and len(op.operands) == len(op.called(key).parameters):  # later updates may bring the other operands
        _check_call(op, op.called(key), op.operands, out.elements[1])


@rule("async-update")
def _async_update(op: Operation) -> None:
    op.expect_result(op.operands[0])


@rule("async-done")
def _async_done(op: Operation) -> None:
    x = op.operands[0]
    if not (isinstance(x, TupleShape) and len(x.elements) >= 2):
        op.fail(f"the operand must come from an async-start, not be {x}")
    op.expect_result(x.elements[1])


@rule("while")
def _while(op: Operation) -> None:
    state = op.operands[0]
    op.expect_result(state)
    _check_call(op, op.called("body"), op.operands, state)
    _check_call(op, op.called("condition"), op.operands, ArrayShape("pred", ()))


@rule("conditional")
def _conditional(op: Operation) -> None:
    which = op.array(0)
    if which == ArrayShape("pred", ()) and op.has("true_computation") and op.has("false_computation"):
        names = (op.get("true_computation"), op.get("false_computation"))
    else:
        form = which == ArrayShape("s32", ()) and op.has("branch_computations")
        op.require(
            form, "needs pred[] with true_computation= and false_computation=, or s32[] with branch_computations="
        )
        names = op.get("branch_computations")
    op.require(len(names) == len(op.operands) - 1, f"{len(names)} branches for {len(op.operands) - 1} operands")
    for name, operand in zip(names, op.operands[1:], strict=True):
        _check_call(op, op.computations[name], (operand,), op.result)


def _scalars(shapes: tuple[ArrayShape, ...]) -> tuple[ArrayShape, ...]:
    return tuple(ArrayShape(s.dtype, ()) for s in shapes)


def _check_reducer(op: Operation, c: Computation, values: tuple[ArrayShape, ...]) -> None:
    """Check a computation of accumulators and values, all scalars, to accumulators."""
    scalars = _scalars(values)
    _check_call(op, c, scalars + scalars, scalars[0] if len(scalars) == 1 else TupleShape(scalars))


def _inputs_and_initials(op: Operation) -> tuple[tuple[ArrayShape, ...], tuple[ArrayShape, ...]]:
    arrays = op.arrays()
    count = len(arrays) // 2
    op.require(len(arrays) == 2 * count, "needs as many initial values as inputs")
    inputs, initials = arrays[:count], arrays[count:]
    for n, (x, initial) in enumerate(zip(inputs, initials, strict=True)):
        op.require(x.dims == inputs[0].dims, f"the inputs {x} and {inputs[0]} differ in dimensions")
        op.require(initial.rank == 0, f"initial value {n} must be a scalar, not {initial}")
        floats = ELEMENT_TYPES[x.dtype].kind == ELEMENT_TYPES[initial.dtype].kind == "float"
        op.require(x.dtype == initial.dtype or floats, f"initial value {n} is {initial.dtype}, the input {x.dtype}")
    return inputs, initials


@rule("reduce")
def _reduce(op: Operation) -> None:
    inputs, initials = _inputs_and_initials(op)
    axes = op.get("dimensions")
    op.check_axes(axes, inputs[0].rank, "dimensions")
    dims = tuple(d for n, d in enumerate(inputs[0].dims) if n not in axes)
    op.expect_results(tuple(ArrayShape(i.dtype, dims) for i in initials))
    _check_reducer(op, op.called("to_apply"), initials)


@rule("reduce-window")
def _reduce_window(op: Operation) -> None:
    inputs, initials = _inputs_and_initials(op)
    window = op.get("window", Window(()))
    rank = inputs[0].rank
    op.require(len(window.dims) == rank, f"the window has {len(window.dims)} dimensions, not {rank}")
    dims = tuple(windowed_size(d, w) for d, w in zip(inputs[0].dims, window.dims, strict=True))
    op.expect_results(tuple(ArrayShape(i.dtype, dims) for i in initials))
    _check_reducer(op, op.called("to_apply"), initials)


@rule("select-and-scatter")
def _select_and_scatter(op: Operation) -> None:
    x, source, initial = op.arrays()
    window = op.get("window", Window(()))
    op.require(len(window.dims) == x.rank, f"the window has {len(window.dims)} dimensions, not {x.rank}")
    dims = tuple(windowed_size(d, w) for d, w in zip(x.dims, window.dims, strict=True))
    op.require(source.dims == dims, f"the source should have dimensions {dims}, not {source}")
    op.expect_result(x)
    scalar = ArrayShape(x.dtype, ())
    op.require(initial == scalar, f"the initial value should be {scalar}, not {initial}")
    _check_call(op, op.called("select"), (scalar, scalar), ArrayShape("pred", ()))
    _check_call(op, op.called("scatter"), (scalar, scalar), scalar)


@rule("sort")
def _sort(op: Operation) -> None:
    arrays, axes = op.arrays(), op.get("dimensions")
    op.require(len(axes) == 1, f"dimensions {axes} must name one")
    op.check_axes(axes, arrays[0].rank, "dimensions")
    for x in arrays:
        op.require(x.dims == arrays[0].dims, f"the operands {x} and {arrays[0]} differ in dimensions")
    op.expect_results(arrays)
    pairs = tuple(s for scalar in _scalars(arrays) for s in (scalar, scalar))
    _check_call(op, op.called("to_apply"), pairs, ArrayShape("pred", ()))


@rule("map")
def _map(op: Operation) -> None:
    arrays, out = op.arrays(), op.array_result
    for x in arrays:
        op.require(x.dims == out.dims, f"the operand {x} does not match the result {out}")
    _check_call(op, op.called("to_apply"), _scalars(arrays), ArrayShape(out.dtype, ()))
