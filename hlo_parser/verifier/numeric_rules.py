"""Rules of operations that compute with numbers."""

from __future__ import annotations

from ..attributes import Window, WindowDim
from ..dtypes import ELEMENT_TYPES
from ..opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, words
from ..shapes import ArrayShape, TupleShape
from .rules import Operation, rule

_INTEGER_OR_PRED = words("and or xor not")
_INTEGER = words("shift-left shift-right-arithmetic shift-right-logical count-leading-zeros mulhi popcnt")
_INEXACT = words(
    """acos acosh asin asinh atanh atan2 cbrt ceil cosine cosh erf exp2 exponential exponential-minus-one floor log
    log-plus-one log2 logistic round-nearest-afz round-nearest-even rsqrt sine sinh sqrt tan tanh is-finite"""
)
_PARTS = {"c64": "f32", "c128": "f64"}
WHOLES = {part: whole for whole, part in _PARTS.items()}


def check_kind(op: Operation, dtype: str) -> None:
    """Check whether an elementwise operation takes numbers of the type."""
    opcode, kind = op.instruction.opcode, ELEMENT_TYPES[dtype].kind
    if opcode in _INTEGER_OR_PRED:
        op.require(kind in ("int", "pred"), f"{opcode} takes integers or pred, not {dtype}")
    elif opcode in _INTEGER:
        op.require(kind == "int", f"{opcode} takes integers, not {dtype}")
    elif opcode in _INEXACT:
        op.require(kind in ("float", "complex"), f"{opcode} takes floating-point numbers, not {dtype}")


@rule(*ELEMENTWISE_UNARY)
def _unary(op: Operation) -> None:
    x = op.array(0)
    opcode = op.instruction.opcode
    check_kind(op, x.dtype)
    if opcode == "convert":
        op.expect_dims(x.dims)
    elif opcode == "is-finite":
        op.expect_dims(x.dims, "pred")
    elif opcode in ("real", "imag", "abs"):
        op.expect_dims(x.dims, _PARTS.get(x.dtype, x.dtype))
    else:
        op.expect_dims(x.dims, x.dtype)


@rule(*ELEMENTWISE_BINARY)
def _binary(op: Operation) -> None:
    x, y = op.arrays()
    opcode = op.instruction.opcode
    op.require(x.dims == y.dims, f"the operands {x} and {y} differ in dimensions")
    if opcode == "stochastic-convert":
        kind = ELEMENT_TYPES[x.dtype]
        op.require(kind.kind == "float", f"stochastic-convert takes floating-point numbers, not {x.dtype}")
        op.require(y.dtype == f"u{kind.bits}", f"the random numbers for {x.dtype} are u{kind.bits}, not {y.dtype}")
        op.expect_dims(x.dims)
        return
    op.require(x.dtype == y.dtype, f"the operands {x} and {y} differ in type")
    check_kind(op, x.dtype)
    if opcode == "compare":
        directions = ("EQ", "NE", "GE", "GT", "LE", "LT")
        op.require(op.get("direction") in directions, f"direction is one of {', '.join(directions)}")
        op.expect_dims(x.dims, "pred")
        _check_comparison(op, x.dtype)
    elif opcode == "complex":
        op.require(x.dtype in WHOLES, f"complex takes f32 or f64, not {x.dtype}")
        op.expect_dims(x.dims, WHOLES[x.dtype])
    else:
        op.expect_dims(x.dims, x.dtype)


def _check_comparison(op: Operation, dtype: str) -> None:
    """Check that the type of a comparison is one of its operands' kind."""
    kind = ELEMENT_TYPES[dtype].kind
    signed = "SIGNED" if dtype.startswith("s") else "UNSIGNED"
    takes = {"float": ("FLOAT", "TOTALORDER"), "complex": ("FLOAT",), "pred": ("UNSIGNED",), "int": (signed,)}[kind]
    given = op.get("type", takes[0])
    op.require(given in takes, f"{dtype} is compared as {' or '.join(takes)}, not {given}")


@rule("select")
def _select(op: Operation) -> None:
    which, yes, no = op.arrays()
    op.require(which.dtype == "pred", f"the first operand must be pred, not {which}")
    op.require(yes == no, f"the choices {yes} and {no} differ")
    op.require(which.dims in (yes.dims, ()), f"the predicate {which} does not match the choices {yes}")
    op.expect_result(yes)


@rule("clamp")
def _clamp(op: Operation) -> None:
    low, x, high = op.arrays()
    op.require(low.dtype == x.dtype == high.dtype, f"the operands {low}, {x}, {high} differ in type")
    for bound in (low, high):
        op.require(bound.dims in (x.dims, ()), f"the bound {bound} does not match {x}")
    op.expect_result(x)


@rule("dot")
def _dot(op: Operation) -> None:
    x, y = op.arrays()
    contracted = op.get("lhs_contracting_dims", ()), op.get("rhs_contracting_dims", ())
    batch = op.get("lhs_batch_dims", ()), op.get("rhs_batch_dims", ())
    for shape, c, b, side in ((x, contracted[0], batch[0], "lhs"), (y, contracted[1], batch[1], "rhs")):
        op.check_axes(c + b, shape.rank, f"contracting and batch dimensions of the {side}")
    for what, (left, right) in (("contracting", contracted), ("batch", batch)):
        sizes = tuple(x.dims[d] for d in left), tuple(y.dims[d] for d in right)
        op.require(sizes[0] == sizes[1], f"the {what} dimensions have sizes {sizes[0]} and {sizes[1]}")
    free_x = tuple(d for n, d in enumerate(x.dims) if n not in contracted[0] + batch[0])
    free_y = tuple(d for n, d in enumerate(y.dims) if n not in contracted[1] + batch[1])
    op.expect_dims(tuple(x.dims[d] for d in batch[0]) + free_x + free_y)


@rule("ragged-dot")
def _ragged_dot(op: Operation) -> None:
    """Check rows of the first operand in groups, each with its own part of the second: [m,k] x [g,k,n], [m,k] x [k,n]
    with k in groups, or batches in groups.
    """
    x, y, sizes = op.arrays()
    ragged, grouped = op.get("lhs_ragged_dims", ()), op.get("rhs_group_dims", ())
    contracted = op.get("lhs_contracting_dims", ()), op.get("rhs_contracting_dims", ())
    batch = op.get("lhs_batch_dims", ()), op.get("rhs_batch_dims", ())
    op.require(len(ragged) == 1, f"lhs_ragged_dims {ragged} must name one")
    op.check_axes(ragged, x.rank, "lhs_ragged_dims")
    op.check_axes((*contracted[0], *batch[0]), x.rank, "contracting and batch dimensions of the lhs")
    op.check_axes((*contracted[1], *batch[1], *grouped), y.rank, "contracting, batch and group dimensions of the rhs")
    free = ragged[0] not in contracted[0] + batch[0]
    op.require(len(grouped) == int(free), f"rhs_group_dims {grouped} must name {int(free)}")
    op.require(ELEMENT_TYPES[sizes.dtype].kind == "int", f"group sizes must be integers, not {sizes}")
    if free:
        fits = sizes.rank >= 1 and sizes.dims[-1] == y.dims[grouped[0]]
        op.require(fits, f"{sizes} does not have a size for each group of {y}")
    for what, (left, right) in (("contracting", contracted), ("batch", batch)):
        have, want = tuple(x.dims[d] for d in left), tuple(y.dims[d] for d in right)
        op.require(have == want, f"the {what} dimensions have sizes {have} and {want}")
    groups = (sizes.dims[-1],) if sizes.rank and ragged[0] in contracted[0] else ()
    free_x = tuple(d for n, d in enumerate(x.dims) if n not in contracted[0] + batch[0])
    free_y = tuple(d for n, d in enumerate(y.dims) if n not in contracted[1] + batch[1] + grouped)
    op.expect_dims(groups + tuple(x.dims[d] for d in batch[0]) + free_x + free_y)


def windowed_size(size: int, w: WindowDim) -> int:
    """Return how many positions a window takes along a dimension."""
    dilated = max(size - 1, 0) * w.base_dilation + min(size, 1) + w.pad_low + w.pad_high
    reach = (w.size - 1) * w.window_dilation + 1
    return 0 if dilated < reach or w.size == 0 else (dilated - reach) // w.stride + 1


@rule("convolution")
def _convolution(op: Operation) -> None:
    x, kernel = op.arrays()
    numbers, window = op.get("dim_labels"), op.get("window", Window(()))
    groups, batch_groups = op.get("feature_group_count", 1), op.get("batch_group_count", 1)
    spatial = len(numbers.input_spatial)
    fits = x.rank == numbers.input_rank and kernel.rank == numbers.kernel_rank
    op.require(fits, f"dim_labels {numbers} do not fit {x} and {kernel}")
    op.require(len(window.dims) == spatial, f"the window has {len(window.dims)} dimensions, not {spatial}")
    for d, w in zip(numbers.kernel_spatial, window.dims, strict=True):
        op.require(kernel.dims[d] == w.size, f"the window's size {w.size} is not the kernel's {kernel.dims[d]}")
    have, want = x.dims[numbers.input_feature], kernel.dims[numbers.kernel_input_feature] * groups
    op.require(have == want, f"the input has {have} features, the kernel's {groups} groups take {want}")
    batch = x.dims[numbers.input_batch]
    op.require(batch % batch_groups == 0, f"the batch of {batch} is no multiple of {batch_groups} batch groups")
    dims = [0] * numbers.output_rank
    dims[numbers.output_batch] = batch // batch_groups
    dims[numbers.output_feature] = kernel.dims[numbers.kernel_output_feature]
    for out, source, w in zip(numbers.output_spatial, numbers.input_spatial, window.dims, strict=True):
        dims[out] = windowed_size(x.dims[source], w)
    op.expect_dims(tuple(dims))


@rule("fft")
def _fft(op: Operation) -> None:
    x, kind, length = op.array(0), op.get("fft_type"), op.get("fft_length")
    op.require(1 <= len(length) <= x.rank, f"fft_length {length} does not fit {x}")
    if kind == "RFFT":
        fits = x.dtype in WHOLES and x.dims[-len(length) :] == length
        op.require(fits, f"RFFT of length {length} does not take {x}")
        op.expect_dims((*x.dims[:-1], length[-1] // 2 + 1 if length[-1] else 0), WHOLES[x.dtype])
    elif kind == "IRFFT":
        op.require(x.dtype in _PARTS, f"IRFFT takes complex numbers, not {x}")
        op.expect_dims((*x.dims[:-1], length[-1]), _PARTS[x.dtype])
    else:
        op.require(kind in ("FFT", "IFFT"), f"fft_type is FFT, IFFT, RFFT or IRFFT, not {kind}")
        op.require(x.dtype in _PARTS, f"{kind} takes complex numbers, not {x}")  # of whichever length
        op.expect_result(x)


@rule("cholesky")
def _cholesky(op: Operation) -> None:
    x = op.array(0)
    op.require(x.rank >= 2 and x.dims[-1] == x.dims[-2], f"cholesky takes square matrices, not {x}")
    op.expect_result(x)


@rule("triangular-solve")
def _triangular_solve(op: Operation) -> None:
    matrix, b = op.arrays()
    op.require(matrix.rank >= 2 and matrix.dims[-1] == matrix.dims[-2], f"the matrix must be square, not {matrix}")
    side = -2 if op.get("left_side", False) else -1
    fits = b.rank == matrix.rank and b.dims[side] == matrix.dims[-1]
    op.require(fits, f"the right side {b} does not fit the matrix {matrix}")
    op.expect_result(b)


@rule("batch-norm-training")
def _batch_norm_training(op: Operation) -> None:
    x = op.array(0)
    feature = _feature(op, x)
    op.expect_result(TupleShape((x, feature, feature)))


@rule("batch-norm-inference")
def _batch_norm_inference(op: Operation) -> None:
    x = op.array(0)
    _feature(op, x)
    op.expect_result(x)


@rule("batch-norm-grad")
def _batch_norm_grad(op: Operation) -> None:
    x = op.array(0)
    axis = op.get("feature_index")
    op.check_axes((axis,), x.rank, "feature_index")
    feature = ArrayShape(x.dtype, (x.dims[axis],))
    op.expect_result(TupleShape((x, feature, feature)))


def _feature(op: Operation, x: ArrayShape) -> ArrayShape:
    axis = op.get("feature_index")
    op.check_axes((axis,), x.rank, "feature_index")
    feature = ArrayShape(x.dtype, (x.dims[axis],))
    for n, shape in enumerate(op.operands[1:], 1):
        op.require(shape == feature, f"operand {n} should be {feature}, not {shape}")
    return feature
