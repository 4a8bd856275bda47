"""The work of an operation by its element type, in simple operations and in functions: in our kernels, and in XLA's.

The unit of functions is about the exponential of a float in a vector. Measured over 512 and 4,096 elements, of our
kernels' functions in a loop and of XLA's loops that are one kernel (jaxlib 0.12, EPYC with vectors of 256 bits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY

OWN_FUNCTIONS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "atan2": (3.5, 35.0),
        "cbrt": (3.6, 30.0),
        "cosine": (4.6, 28.0),
        "divide": (0.27, 0.8),
        "erf": (2.9, 30.0),
        "exponential": (0.9, 2.7),
        "exponential-minus-one": (1.35, 3.3),
        "log": (1.8, 5.0),
        "log-plus-one": (2.2, 5.4),
        "logistic": (1.3, 4.0),
        "power": (3.0, 10.0),
        "remainder": (10.0, 11.0),
        "rsqrt": (0.75, 2.5),
        "sine": (4.6, 26.0),
        "sqrt": (0.45, 1.6),
        "tan": (4.9, 29.0),
        "tanh": (1.7, 3.7),
    }
)
"""The work of functions of floats and of doubles in our kernels. A power is between a root and what it is else."""

XLA_FUNCTIONS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "atan2": (20.0, 33.0),
        "cbrt": (13.0, 29.0),
        "cosine": (4.2, 21.0),
        "divide": (0.25, 0.8),
        "erf": (1.0, 9.0),
        "exponential": (1.1, 3.8),
        "exponential-minus-one": (2.0, 6.0),
        "log": (1.6, 8.7),
        "log-plus-one": (2.8, 11.0),
        "logistic": (1.5, 4.8),
        "power": (12.0, 24.0),
        "remainder": (30.0, 40.0),
        "rsqrt": (0.65, 10.0),
        "sine": (4.2, 21.0),
        "sqrt": (0.5, 1.6),
        "tanh": (1.2, 3.3),
    }
)
"""The same in XLA's kernels."""

WARP_FUNCTIONS: Mapping[str, float] = MappingProxyType(
    {
        "atan2": 2.0,
        "cbrt": 1.2,
        "cosine": 1.4,
        "divide": 0.8,
        "erf": 1.6,
        "exponential": 0.5,
        "exponential-minus-one": 1.0,
        "log": 0.6,
        "log-plus-one": 1.2,
        "logistic": 1.0,
        "power": 2.4,
        "remainder": 4.0,
        "rsqrt": 0.5,
        "sine": 1.4,
        "sqrt": 0.8,
        "tan": 2.4,
        "tanh": 1.0,
    }
)
"""The work of functions on a GPU, in units of ``HEAVY_CLOCKS`` for each 128 elements: the instructions that CUDA's math
library makes of them, as in ``devices/specs/latency_cuda.toml``.
"""

OWN_OTHERS, XLA_OTHERS = (4.0, 30.0), (10.0, 30.0)
"""The same of all other functions, most of which go to the C library one by one. Estimates."""

EXTREMUM, EXTREMUM_CLOCKS = 3.0, 4.0
"""The clocks of a maximum or minimum of floats on a CPU over those of an addition, and the clocks of each step of a
chain of them while the processor goes on with the next place. They are six instructions with a latency of eight clocks,
since they propagate NaN and order zeros; estimates by these counts.
"""

ONE_OF_SEVERAL = 4.0
"""By how much longer a CPU combines several values at once, which do not become vectors. Measured: ``argmax``."""

Weigh = Callable[[Node], tuple[float, float]]
"""Return the work of one element as that of simple operations and that of functions; one of both is 0."""


def own_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of our kernels."""
    return _weight(node, OWN_FUNCTIONS, OWN_OTHERS)


def plain_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of a GPU, whatever its type and whatever function it is."""
    return (0.0, 1.0) if node.op in HEAVY else (1.0, 0.0)


def warp_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of a GPU, whatever its type."""
    return (0.0, WARP_FUNCTIONS.get(node.op, 1.0)) if node.op in HEAVY else (1.0, 0.0)


def xla_weight(node: Node) -> tuple[float, float]:
    """Weigh an operation of XLA's kernels."""
    return _weight(node, XLA_FUNCTIONS, XLA_OTHERS)


def _weight(
    node: Node, functions: Mapping[str, tuple[float, float]], others: tuple[float, float]
) -> tuple[float, float]:
    if node.op not in HEAVY:
        return _light(node), 0.0
    if not _is_of_floats(node):
        return 0.0, 1.0
    return 0.0, functions.get(node.op, others)[_is_wide(node)]


def is_extremum(node: Node) -> bool:
    """Return whether a reduction takes the maximum or minimum of floats."""
    if node.op != "reduce" or len(node.operands) != 2 or not _is_of_floats(node):
        return False
    return combines_by(node.graphs["to_apply"], 0) in ("maximum", "minimum")


def combiner_weight(reduction: Node) -> float:
    """Return the work to combine two values, in additions of vectors."""
    combiner = reduction.graphs.get("to_apply")
    if combiner is None:
        return 1.0
    singly = ONE_OF_SEVERAL if len(reduction.operands) > 2 else 1.0
    return singly * max(1.0, total(own_weight, (n for n in combiner.nodes if n.op in ELEMENTWISE))[0])


def total(weigh: Weigh, nodes: Iterable[Node]) -> tuple[float, float]:
    """Return the work of one element of each of these operations."""
    weights = [weigh(n) for n in nodes]
    return sum(light for light, _ in weights), sum(heavy for _, heavy in weights)


def _light(node: Node) -> float:
    """Return the work of a simple operation. Extrema of floats are several instructions in XLA's kernels too."""
    extremum = node.op in ("maximum", "minimum") and _is_of_floats(node)
    return (2.0 if _is_wide(node) else 1.0) * (EXTREMUM if extremum else 1.0)


def _is_wide(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype == "f64"


def _is_of_floats(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.startswith(("f", "bf"))
