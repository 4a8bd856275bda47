"""Which of JAX's primitives round, and by how much at most."""

from __future__ import annotations

import jax.numpy as jnp

EXACT = frozenset(
    [
        "neg",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
        "max",
        "min",
        "select_n",
        "clamp",
        "reshape",
        "broadcast_in_dim",
        "transpose",
        "slice",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "scatter",
        "concatenate",
        "pad",
        "rev",
        "squeeze",
        "expand_dims",
        "iota",
        "copy",
        "copy_p",
        "stop_gradient",
        "reduce_max",
        "reduce_min",
        "argmax",
        "argmin",
        "sort",
        "top_k",
        "approx_top_k",
        "cummax",
        "cummin",
        "reduce_window_max",
        "reduce_window_min",
        "real",
        "imag",
        "conj",
        "complex",
        "is_finite",
        "bitcast_convert_type",
        "reduce_precision",
        "nextafter",
        "optimization_barrier",
        "split",
        "tile",
        "random_bits",
        "random_seed",
        "random_wrap",
        "random_unwrap",
        "random_fold_in",
        "random_split",
        "random_clone",
        "scatter_max",
        "scatter_min",
        "scatter-max",
        "scatter-min",
        "select_and_gather_add",
        "stack",
        "unstack",
        "ppermute",
        "all_gather",
        "all_to_all",
        "pmax",
        "pmin",
        "psum_invariant",
        "rem",
        "pvary",
        *("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "le_to", "lt_to"),
    ]
)
"""Operations that do not round."""

EXTREMES = frozenset(
    [
        "max",
        "min",
        "clamp",
        *("reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min"),
        *("cummax", "cummin"),
        *("scatter_max", "scatter_min", "scatter-max", "scatter-min"),
    ]
)
"""Of these, those whose zeros and NaNs may have either sign: XLA's NaNs are negative at times where no operand's is."""

CORRECT = frozenset(
    ["add", "sub", "mul", "add_any", "sqrt", "square", "integer_pow", "convert_element_type", "psum", "mul_hi"]
)
"""Operations that round once, and not at all where the result is a short binary fraction."""

SUMS = frozenset(
    [
        "reduce_sum",
        "reduce_prod",
        "dot_general",
        "conv_general_dilated",
        "cumsum",
        "cumprod",
        "cumlogsumexp",
        "reduce_window_sum",
        "reduce_window",
        "scatter-add",
        "scatter_add",
        "scatter-mul",
        "scatter_mul",
        "scatter-sub",
        "scatter_sub",
        "select_and_scatter_add",
        "fft",
        "reduce",
        "ragged_dot_general",
        "ragged_dot",
        "scaled_dot",
        "reduce_and",
        "associative_scan",
    ]
)

MANY = {
    "lgamma": 32,
    "digamma": 32,
    "igamma": 64,
    "igammac": 64,
    "regularized_incomplete_beta": 128,
    "zeta": 64,
    "polygamma": 128,
    "bessel_i0e": 16,
    "bessel_i1e": 16,
    "igamma_grad_a": 128,
    "random_gamma_grad": 128,
    "erf_inv": 16,
    "pow": 16,
    "log1p": 160,  # XLA:CPU's in float64 is 128 units off at places.
    "tan": 8,
    "cholesky": 16,
    "lu": 16,
    "qr": 16,
    "geqrf": 16,
    "eigh": 64,
    "eig": 64,
    "svd": 64,
    "triangular_solve": 32,
}
"""Units in the last place for what is approximated."""

IN_64_BITS = {"acosh": 160, "atanh": 160, "random_gamma": 1024}
"""The same in float64, where XLA:CPU makes these of its log1p, 117 units off at places: 640 in a power of it."""

BEFORE = {"lgamma": 32, "digamma": 32}
"""Units by which operands move, where more than one: series that cancel close to their zeros."""

OF_LOGARITHMS = frozenset(["igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta"])
"""Operations with a factor exp(a log x - x - lgamma(a)), or the like: where operands are large, the last place of its
exponent is among the result's first."""

USUAL = 4
HALVES = (jnp.float16, jnp.bfloat16)
ELEMENTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "abs",
        "max",
        "min",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "tanh",
        "logistic",
        "sin",
        "cos",
        "sqrt",
        "rsqrt",
        "square",
        "integer_pow",
        "pow",
        "erf",
        "convert_element_type",
        "select_n",
        "sign",
        "floor",
        "ceil",
        "round",
    ]
)
CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "checkpoint",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
    "composite",
    "remat",
}
