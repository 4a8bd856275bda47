"""Products, convolutions and linear algebra, with any dimension numbers."""

from __future__ import annotations

import math

from tests.fuzz.draft import Draft, dtype_name, kind_of
from tests.fuzz.guesses import matrix
from tests.fuzz.recipes.arrays import Recipe
from tests.fuzz.recipes.combine import window


def _right(d: Draft, v: str) -> tuple[str, tuple[list[int], list[int], list[int], list[int]]] | None:
    """Another operand of a product, and what is contracted and batched of both."""
    rng = d.rng
    shape = d.shape(v)
    if math.prod(shape) > 1500 or not 1 <= len(shape) <= 4:
        return None
    order = rng.sample(range(len(shape)), len(shape))
    contracted = order[: rng.choice((0, 1, 1, 1, 2))]
    batch = [k for k in order[len(contracted) :] if rng.random() < 0.3]
    dims = [("c", k, shape[k]) for k in contracted] + [("b", k, shape[k]) for k in batch]
    dims += [("f", -1, rng.choice((1, 2, 3, 5, 8))) for _ in range(rng.choice((0, 1, 1, 2)))]
    rng.shuffle(dims)
    places = {k: at for at, (kind, k, _) in enumerate(dims) if kind != "f"}
    right = d.like(v, shape=[n for *_, n in dims])
    return right, (contracted, [places[k] for k in contracted], batch, [places[k] for k in batch])


def dot_general(d: Draft, v: str) -> str | None:
    found = _right(d, v)
    if found is None:
        return None
    right, (cl, cr, bl, br) = found
    wider = d.rng.choice(("", "", ", preferred_element_type=jnp.float32")) if kind_of(d.aval(v)) == "float" else ""
    return f"lax.dot_general({v}, {right}, (({cl}, {cr}), ({bl}, {br})){wider})"


def dot(d: Draft, v: str) -> str | None:
    shape = d.shape(v)
    if not 1 <= len(shape) <= 2:
        return None
    return f"lax.dot({v}, {d.like(v, shape=(shape[-1], d.rng.choice((1, 3, 8))))})"


def batch_matmul(d: Draft, v: str) -> str | None:
    shape = d.shape(v)
    if len(shape) < 2:
        return None
    return f"lax.batch_matmul({v}, {d.like(v, shape=(*shape[:-2], shape[-1], d.rng.choice((1, 3, 5))))})"


def scaled_dot(d: Draft, v: str) -> str | None:
    m, k, n = d.rng.choice((1, 4)), 32, d.rng.choice((1, 3))
    left, right = d.input("bfloat16", (m, k)), d.input("bfloat16", (k, n))
    return f"lax.scaled_dot({left}, {right}, preferred_element_type=jnp.float32)"


def ragged(d: Draft, v: str) -> str:
    m, k, n, groups = d.rng.choice((4, 9)), d.rng.choice((2, 5)), d.rng.choice((1, 3)), 3
    sizes = d.input("int32", (groups,), f"np.array([{m - 2}, 0, 2], np.int32)")
    left, right = d.input("float32", (m, k)), d.input("float32", (groups, k, n))
    return f"{left}, {right}, {sizes}"


def ragged_dot_general(d: Draft, v: str) -> str:
    numbers = "lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])"
    return f"lax.ragged_dot_general({ragged(d, v)}, {numbers})"


def convolution(d: Draft, name: str) -> str | None:
    """Any number of dimensions, order, padding, dilation and groups."""
    rng = d.rng
    spatial = rng.choice((0, 1, 1, 2, 2, 3))
    groups, batches = rng.choice(((1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
    channels, features, batch = (
        groups * rng.choice((1, 2, 3)),
        groups * batches * rng.choice((1, 2, 4)),
        batches * rng.choice((1, 2, 3)),
    )
    area = [rng.choice((1, 3, 4, 7, 8, 9)) for _ in range(spatial)]
    drawn = [window(d, 2) for _ in range(spatial)]
    size, stride, padding, base, dilation = ([w[k] for w in drawn] for k in range(5))
    left, right = [batch, channels, *area], [features, channels // groups, *size]
    letters = "DHW"[:spatial]
    order_l, order_r, order_o = ("NC" + letters, "OI" + letters, "NC" + letters)
    dtype = rng.choice(("float32", "float32", "float16", "bfloat16", "int32", "complex64"))
    if name == "conv_general_dilated":
        order_l, order_r, order_o = ("".join(rng.sample(o, len(o))) for o in (order_l, order_r, order_o))
        plain_l, plain_r = "NC" + letters, "OI" + letters
        left, right = [left[plain_l.index(c)] for c in order_l], [right[plain_r.index(c)] for c in order_r]
    x, w = d.input(dtype, left), d.input(dtype, right)
    numbers = f"({order_l!r}, {order_r!r}, {order_o!r})"
    match name:
        case "conv_general_dilated":
            ways = f"{stride}, {padding}, {base}, {dilation}, {numbers}, {groups}, {batches}"
            return f"lax.conv_general_dilated({x}, {w}, {ways})"
        case "conv":
            return f"lax.conv({x}, {w}, {stride}, {rng.choice(('SAME', 'VALID'))!r})"
        case "conv_with_general_padding":
            return f"lax.conv_with_general_padding({x}, {w}, {stride}, {padding}, {base}, {dilation})"
        case "conv_transpose":
            filters = d.input(dtype, [channels, features, *size])
            numbers = f"('NC{letters}', 'IO{letters}', 'NC{letters}')"
            given = f"{stride}, {rng.choice(('SAME', 'VALID'))!r}, dimension_numbers={numbers}"
            return f"lax.conv_transpose({x}, {filters}, {given})"
    return f"lax.conv_general_dilated_patches({x}, {size}, {stride}, {padding}, {base}, {dilation})"


def convolution_recipe(name: str) -> Recipe:
    return lambda d, v: convolution(d, name)


def symmetric(d: Draft, v: str) -> str:
    """A positive definite matrix's text."""
    m = matrix(d, v)
    return f"({m} @ {m}.mT + 4 * jnp.eye({m}.shape[-1], dtype={m}.dtype))"


def triangular_solve(d: Draft, v: str) -> str:
    m = symmetric(d, v)
    flags = ", ".join(f"{k}={d.rng.random() < 0.5}" for k in ("left_side", "lower", "transpose_a", "unit_diagonal"))
    return f"lax.linalg.triangular_solve({m}, {m} + 1, {flags})"


def tridiagonal_solve(d: Draft, v: str) -> str:
    n = d.rng.choice((3, 4, 9))
    parts = ", ".join(f"{d.input('float32', (n,))} * 0.1{' + 3' if k == 1 else ''}" for k in range(3))
    return f"lax.linalg.tridiagonal_solve({parts}, {d.input('float32', (n, 2))})"


def ormqr(d: Draft, v: str) -> str:
    m = matrix(d, v)
    return f"lax.linalg.ormqr({m}, jnp.ones({m}.shape[:-1], {m}.dtype), {m})"


def of_matrix(text: str) -> Recipe:
    return lambda d, v: text.format(m=matrix(d, v), s=symmetric(d, v))


def custom_linear_solve(d: Draft, v: str) -> str:
    m = symmetric(d, v)
    return f"lax.custom_linear_solve(lambda x: {m} @ x, {matrix(d, v)}[..., 0], lambda mv, b: jnp.linalg.solve({m}, b))"


def custom_root(d: Draft, v: str) -> str:
    """Newton's steps from any start to a square root."""
    name = dtype_name(d.aval(v)) if kind_of(d.aval(v)) == "float" else "float32"
    c = f"(jnp.abs({v}).astype(jnp.{name}) + 1)"
    solve = "lambda f, r: lax.fori_loop(0, 4, lambda i, r: r - f(r) / (2 * r), r)"
    return f"lax.custom_root(lambda r: r * r - {c}, {c}, {solve}, lambda g, y: y / g(jnp.ones_like(y)))"


RECIPES: dict[str, Recipe] = {
    "lax.dot_general": dot_general,
    "lax.dot": dot,
    "lax.batch_matmul": batch_matmul,
    "lax.scaled_dot": scaled_dot,
    "lax.ragged_dot": lambda d, v: f"lax.ragged_dot({ragged(d, v)})",
    "lax.ragged_dot_general": ragged_dot_general,
    **{
        f"lax.{n}": convolution_recipe(n)
        for n in (
            "conv",
            "conv_general_dilated",
            "conv_with_general_padding",
            "conv_transpose",
            "conv_general_dilated_patches",
        )
    },
    "lax.custom_linear_solve": custom_linear_solve,
    "lax.custom_root": custom_root,
    "lax.linalg.triangular_solve": triangular_solve,
    "lax.linalg.tridiagonal_solve": tridiagonal_solve,
    "lax.linalg.ormqr": ormqr,
    "lax.linalg.cholesky": of_matrix("lax.linalg.cholesky({s})"),
    "lax.linalg.cholesky_update": of_matrix("lax.linalg.cholesky_update(jnp.linalg.cholesky({s}).mT, {m}[..., 0])"),
    "lax.linalg.lu_pivots_to_permutation": of_matrix("lax.linalg.lu_pivots_to_permutation(lax.linalg.lu({m})[1], 7)"),
    "lax.linalg.qdwh": of_matrix("lax.linalg.qdwh({m})[:2]"),
    "lax.linalg.tridiagonal": of_matrix("lax.linalg.tridiagonal({s})"),
    "lax.linalg.symmetric_product": of_matrix("lax.linalg.symmetric_product({m}, {s})"),
    "jnp.linalg.cholesky": of_matrix("jnp.linalg.cholesky({s})"),
    "jax.scipy.linalg.cho_solve": of_matrix("jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor({s}), {m})"),
    "jax.scipy.linalg.lu_solve": of_matrix("jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor({s}), {m})"),
}
