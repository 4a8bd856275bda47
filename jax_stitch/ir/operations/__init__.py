"""Elementwise operations, a row for each: what the stages know of them."""

from jax_stitch.ir.operations.table import ELEMENTWISE, HEAVY, TABLE, Cost, Operation

__all__ = ["ELEMENTWISE", "HEAVY", "TABLE", "Cost", "Operation"]
