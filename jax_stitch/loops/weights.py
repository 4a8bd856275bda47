"""How much work an operation is by its element type, in operations of 32 bits: in our kernels, and in XLA's.

XLA's are after times of loops that it compiles as one kernel (jaxlib 0.12, Zen 4, a machine with other work on it);
ours are estimates by the number of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Node, TensorType
from jax_stitch.operations import HEAVY

IN_VECTORS = frozenset(
    {"divide", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sqrt", "tanh"}
)
"""Functions of doubles that are computed in vectors, by our kernels and by XLA's; others go to the C library, one by
one."""

ONE_BY_ONE = 20.0
"""The cost of a call of the C library for each element, over that of a vector function of floats; an estimate."""

XLA_ONE_BY_ONE, XLA_DOUBLE, XLA_DOUBLE_ONE_BY_ONE = 7.0, 3.0, 20.0
"""The same of XLA's: of floats, which it has no vectors of some functions for either, and of doubles."""

XLA_IN_VECTORS = IN_VECTORS | {"erf", "cbrt"}

EXTREMUM, EXTREMUM_CLOCKS = 3.0, 4.0
"""The clocks of a maximum or minimum of floats on a CPU over those of an addition, and the clocks of each step of a
chain of them while the processor goes on with the next place. They are six instructions with a latency of eight clocks,
since they propagate NaN and order zeros; estimates by these counts.
"""

Weigh = Callable[[Node], tuple[float, float]]
"""Return the work of one element as that of simple operations and that of functions; one of both is 0."""


def own_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of our kernels."""
    wide = _is_wide(node)
    if node.op not in HEAVY:
        return _light(node), 0.0
    if not wide or node.op in IN_VECTORS:
        return 0.0, 2.0 if wide else 1.0
    return 0.0, ONE_BY_ONE


def plain_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of a GPU, whatever its type."""
    return (0.0, 1.0) if node.op in HEAVY else (1.0, 0.0)


def xla_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of XLA's kernels."""
    wide = _is_wide(node)
    if node.op not in HEAVY:
        return _light(node), 0.0
    if node.op in XLA_IN_VECTORS:
        return 0.0, XLA_DOUBLE if wide else 1.0
    return 0.0, XLA_DOUBLE_ONE_BY_ONE if wide else XLA_ONE_BY_ONE


def is_extremum(node: Node) -> bool:
    """Return whether a reduction takes the maximum or minimum of floats."""
    if node.op != "reduce" or len(node.operands) != 2 or not node.tensor.dtype.startswith(("f", "bf")):
        return False
    return combines_by(node.graphs["to_apply"], 0) in ("maximum", "minimum")


def total(weigh: Weigh, nodes: Iterable[Node]) -> tuple[float, float]:
    """Return the work of one element of each of these operations."""
    weights = [weigh(n) for n in nodes]
    return sum(light for light, _ in weights), sum(heavy for _, heavy in weights)


def _light(node: Node) -> float:
    """Return the work of a simple operation. Extrema of floats are several instructions in XLA's kernels too."""
    extremum = node.op in ("maximum", "minimum") and node.tensor.dtype.startswith(("f", "bf"))
    return (2.0 if _is_wide(node) else 1.0) * (EXTREMUM if extremum else 1.0)


def _is_wide(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype == "f64"
