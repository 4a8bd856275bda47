"""Index expressions: which element of an array, in terms of the variables of the loops around it."""

from jax_stitch.ir.indices.expr import Expr, const, delinearize, linearize, var

__all__ = ["Expr", "const", "delinearize", "linearize", "var"]
