"""Whether known faults strike a program, by the HLO that XLA has compiled."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from jax_stitch.jit.known_faults.model import Fault

_YNNPACK = re.compile("__ynn_fusion")
_SIGNS: Mapping[str, re.Pattern[str]] = {
    "fused_product": _YNNPACK,
    "high_rank_sum": _YNNPACK,
    "shifted_update": re.compile(r"dynamic-update-slice\(%?(?:bitcast|reshape|copy)"),
}
"""What the text has at least where a fault strikes: to read all of a large program takes a second."""


def struck_by(text: str, faults: Collection[Fault]) -> dict[str, list[str]]:
    """Return the instructions of optimized HLO that faults strike, by the fault's name.

    What has no condition strikes nothing. The text is read as a module only where it has a sign of a fault.
    """
    signs = [fault for fault in faults if fault.name in _SIGNS and _SIGNS[fault.name].search(text)]
    if not signs:
        return {}
    import hlo_parser
    from jax_stitch.jit.known_faults.conditions import CONDITIONS

    module = hlo_parser.parse(text)
    instructions = [i for computation in module.computations for i in computation.instructions]
    fusions = [(i, module.computation(i.attributes["calls"])) for i in instructions if i.opcode == "fusion"]
    found = {f.name: [i.name for i, inside in fusions if CONDITIONS[f.name](i, inside)] for f in signs}
    return {name: struck for name, struck in found.items() if struck}
