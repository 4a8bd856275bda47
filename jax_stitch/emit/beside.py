"""What is read where the place decides between it and what another phase of the kernel has written.

NVRTC makes one load of such a choice's, from the address that is chosen, and by ``ld.global.nc`` where one of the
buffers is an input that nobody writes: it then reads the other past the coherence of the caches. So none of them may be
known as constant.
"""

from __future__ import annotations

from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.walk import nodes
from jax_stitch.util.values import replace


def read_beside(part: model.Part) -> model.Part:
    """Return a part whose inputs that are chosen from beside what crosses phases are said to cross them too."""
    crossing = {p.name for p in part.parameters if p.crossing}
    if not crossing:
        return part
    names = set(crossing)
    for body in (part.before, part.body, part.after):
        for choice in (n for s in body for n in nodes(s) if isinstance(n, st.Choice)):
            arrays = {n.array for n in nodes(choice) if isinstance(n, Element)}
            names |= arrays if arrays & crossing else set()
    parameters = tuple(
        replace(p, crossing=True) if p.name in names and not p.written and not p.scratch else p for p in part.parameters
    )
    return replace(part, parameters=parameters)
