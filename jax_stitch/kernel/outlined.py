"""Outlining: the sweeps of a long part become functions of their own on a CPU, whose compiler takes longer for each
value the more of them a function has.
"""

from __future__ import annotations

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.model import Kernel, Part
from jax_stitch.kernel.walk import map_bodies, nodes
from jax_stitch.util.values import replace

LONG = 600
"""Values that a part names, from which on its sweeps are outlined."""


def outlined(kernel: Kernel) -> Kernel:
    """Return the kernel with the sweeps of its long parts outlined."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    if sum(isinstance(s, st.Define) for top in part.body for s in nodes(top)) <= LONG:
        return part
    return replace(part, before=_body(part.before), body=_body(part.body), after=_body(part.after))


def _body(body: st.Body) -> st.Body:
    """Return statements with the sweeps among them outlined, but for those that helpers share."""
    return tuple(
        replace(s, outlined=not s.divided) if isinstance(s, st.Items | st.Sums) else map_bodies(s, _body) for s in body
    )
