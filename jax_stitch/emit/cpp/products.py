"""Blocks of matrix products as C++: macros of ``backend/runtime/product.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_stitch.emit.cpp.values import ctype
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Value
from jax_stitch.kernel.product_blocks import without

if TYPE_CHECKING:
    from jax_stitch.emit.cpp.statements import Statements


def product_line(writer: Statements, s: st.Sums, steps: st.Steps, block: st.Statement) -> str:
    """Return the text of one block, whose sums go through all steps, or through those of a block of steps."""
    assert isinstance(block, st.Apply)
    count, start = str(steps.term.extent), ""
    if steps.joins is not None:
        count, start = "end_ - from_", "from_ * "

    def read(value: Value) -> tuple[str, int]:
        """Return the address in the first step, and how far those of steps are apart."""
        assert isinstance(value, Element)
        first, step = without(value.at, steps.term.variable)
        after = f" + {start}{step}" if start else ""
        return f"&{value.array}[{writer.values.index(first)}{after}]", step

    factors = [read(value) for value in block.operands]
    shared, wide = factors[: block.sizes[0]], factors[block.sizes[0] :]
    first = block.operands[0]
    assert isinstance(first, Element)
    ends = "_FROM_ZERO" if block.intrinsic == "multiply_from_zero" else ""
    sizes, sums = f"{ctype(first.dtype)}, {s.width}, {count}", ", ".join(f"ST_SUM({name})" for name in block.cells)
    if len(wide) > 1:
        rights = ", ".join(address for address, _ in wide)
        return f"ST_PRODUCT_APART{ends}({sizes}, {shared[0][0]}, {shared[0][1]}, ({rights}), {wide[0][1]}, ({sums}))"
    lefts = ", ".join(address for address, _ in shared)
    return f"ST_PRODUCT{ends}({sizes}, ({lefts}), {shared[0][1]}, {wide[0][0]}, {wide[0][1]}, ({sums}))"
