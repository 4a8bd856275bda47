"""Index arithmetic: which element of an operand each element of a result reads."""

from jax_stitch.indexing.expr import Expr, const, delinearize, linearize, var
from jax_stitch.indexing.maps import Guard, Read, reads

__all__ = ["Expr", "Guard", "Read", "const", "delinearize", "linearize", "reads", "var"]
