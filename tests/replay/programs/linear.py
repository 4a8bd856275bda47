"""Products, convolutions, transforms and factorisations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tests.replay.programs.registry import integers, normal, program


@program(normal(3, 8, 9), normal(3, 9, 10), normal(8, 3))
def products(a: Any, b: Any, c: Any) -> Any:
    exact = jnp.einsum("bij,bjk->bik", a, b, precision="highest")
    dims = (((2,), (1,)), ((0,), (0,)))
    return (
        a @ b,
        exact,
        jnp.einsum("bij,ib->j", a, c),
        jnp.tensordot(c, a, 1),
        jnp.outer(a[0, 0], c[0]),
        lax.dot_general(a, b, dims),
    )


@program(
    integers(8, 9, low=-128, high=128, dtype=np.int8), integers(9, 5, low=-128, high=128, dtype=np.int8), exact=True
)
def integer_products(a: Any, b: Any) -> Any:
    wide = lax.dot(a, b, preferred_element_type=jnp.int32)
    return wide, a.astype(jnp.int32) @ b.astype(jnp.int32), lax.dot(a, b)


@program(normal(8, 16, dtype=ml_dtypes.bfloat16), normal(16, 5, dtype=ml_dtypes.bfloat16))
def bf16_products(a: Any, b: Any) -> Any:
    return a @ b, lax.dot(a, b, preferred_element_type=jnp.float32), jax.nn.gelu(a @ b)


@program(normal(2, 9, 11, 4), normal(3, 3, 4, 6))
def convolutions(x: Any, w: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")

    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=numbers)

    y, vjp = jax.vjp(conv, x, w)
    dilated = lax.conv_general_dilated(x, w, (1, 1), ((2, -1), (0, 3)), (2, 1), (1, 2), dimension_numbers=numbers)
    return y, vjp(y), dilated, lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=numbers)


@program(normal(2, 4, 9, 8), normal(6, 2, 3, 3))
def grouped_convolutions(x: Any, w: Any) -> Any:
    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=2)

    y, vjp = jax.vjp(conv, x, w)
    return y, vjp(y), lax.conv_general_dilated(x, w[:, :1, :, :].repeat(4, 1), (1, 1), "SAME", batch_group_count=2)


@program(normal(6, 12), normal(4, 6, 8))
def transforms(x: Any, y: Any) -> Any:
    f = jnp.fft
    return f.fft(x), f.ifft(x), f.rfft(x), f.irfft(x), f.fft2(x), f.rfftn(y), f.fftshift(f.fftn(y))


_SQUARE = normal(3, 6, 6) + 6 * np.eye(6, dtype=np.float32)


@program(_SQUARE, portable=False)
def factorisations(a: Any) -> Any:
    s = a @ a.transpose(0, 2, 1)
    linalg = jnp.linalg
    return (
        linalg.cholesky(s),
        linalg.qr(a),
        linalg.eigh(s),
        linalg.svd(a),
        linalg.det(a),
        linalg.inv(a),
        linalg.eigvals(a),
    )


@program(_SQUARE, portable=False)
def solves(a: Any) -> Any:
    b = a[..., :2]
    lower = jnp.tril(a)
    solve = jax.scipy.linalg.solve_triangular
    return (
        jnp.linalg.solve(a, b),
        solve(lower[0], b[0], lower=True),
        solve(lower[0], b[0], lower=True, trans=1),
        jnp.linalg.pinv(a),
    )


@program(_SQUARE, portable=False)
def gradients_of_factorisations(a: Any) -> Any:
    return jax.grad(lambda a: jnp.linalg.cholesky(a @ a.transpose(0, 2, 1)).sum() + jnp.linalg.slogdet(a)[1].sum())(a)
