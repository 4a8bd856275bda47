"""Transposed loads in squares: what a sweep of a team's one thread reads across its lanes, as what is transposed, is
loaded line by line, a square of them at a time, and turned in registers (``backend/runtime/squares.h``).

Place by place, each element would have its line loaded anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Ref
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.threads import How
from jax_stitch.kernel.walk import map_sweeps, nodes
from jax_stitch.util.values import replace

LEAST_ACROSS = 1 << 12
"""Elements of what is read across its lanes that leave a core's first cache, half of which holds them."""

_TYPES = frozenset({"f32", "f64", "s32", "s64", "u32", "u64"})
"""Types whose elements are the same in memory and in registers, and as wide as the lanes that vectors exchange."""


class _Strides(Struct, frozen=True):
    """How far the elements of neighbouring runs, and of neighbouring lanes, are apart; 0 for one that serves all, None
    where that is not always the same."""

    run: int | None
    lane: int | None

    @property
    def are_across(self) -> bool:
        """Return whether neighbours in memory are on neighbouring runs, and lanes apart."""
        return self.run in (1, -1) and self.lane not in (0, 1, -1)


def square_loads(kernel: Kernel) -> Kernel:
    """Return the kernel with the sweeps in squares that read or write something large across their lanes."""
    return map_sweeps(kernel, lambda s: (_in_squares(s),) if isinstance(s, st.Items) else (s,))


def _in_squares(s: st.Items) -> st.Items:
    """Return a sweep in squares, whose places are done in another order, if that changes nothing and pays."""
    if s.divided or s.lane.how is not How.LANE or s.run.extent * s.lane.extent < LEAST_ACROSS:
        return s
    if not all(isinstance(line, st.Define | st.Assign) for line in s.body):
        return s
    if not any(_strides(e, s).are_across for e in _elements(s.body)):
        return s
    written = {line.target.array for line in s.body if isinstance(line, st.Assign) and isinstance(line.target, Element)}
    names = {line.name for line in s.body if isinstance(line, st.Define)}
    squares: list[st.Square] = []
    body: list[st.Statement] = []
    for line in s.body:
        if isinstance(line, st.Define) and _is_turned(line, s, written, names):
            assert isinstance(line.value, Element)
            squares.append(st.Square(f"{line.name}_across_", line.dtype, line.value))
            body.append(replace(line, value=Ref(squares[-1].name, line.dtype)))
        else:
            body.append(line)
    return replace(s, body=tuple(body), squares=tuple(squares), in_squares=True)


def _elements(body: st.Body) -> Iterator[Element]:
    for line in body:
        yield from (n for n in nodes(line) if isinstance(n, Element))


def _strides(e: Element, s: st.Items) -> _Strides:
    variables = {v.name: v for v in e.at.variables()}
    run, lane = (
        e.at.stride_of(variables[axis.variable]) if axis.variable in variables else 0 for axis in (s.run, s.lane)
    )
    return _Strides(run, lane)


def _is_turned(line: st.Define, s: st.Items, written: set[str], names: set[str]) -> bool:
    """Return whether a value is an element across the lanes, of an array that the sweep does not write."""
    e = line.value
    if not isinstance(e, Element) or e.dtype not in _TYPES or line.dtype != e.dtype or e.vector or e.array in written:
        return False
    strides = _strides(e, s)
    is_known = not {v.name for v in e.at.variables()} & names
    return is_known and strides.run == 1 and strides.lane is not None and abs(strides.lane) > 1
