"""Asynchronous operations come in pairs: a start, perhaps updates, and one done."""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis import users
from ..model import Computation
from .fault import Fault

_STARTS = {
    "all-gather-done": ("all-gather-start",),
    "all-reduce-done": ("all-reduce-start",),
    "async-done": ("async-start", "async-update"),
    "async-update": ("async-start", "async-update"),
    "collective-permute-done": ("collective-permute-start",),
    "copy-done": ("copy-start",),
}
_ENDS = {
    start: tuple(end for end, starts in _STARTS.items() if start in starts)
    for start in {s for starts in _STARTS.values() for s in starts}
}


def pair_faults(c: Computation) -> Iterator[Fault]:
    """End without a beginning, and beginnings with no end or several."""
    if all(i.opcode not in _STARTS and i.opcode not in _ENDS for i in c):
        return
    readers = users(c)
    for i in c:
        for name in i.operands[:1]:
            source = c[name].opcode
            wanted = _STARTS.get(i.opcode)
            if wanted is not None and source not in wanted and not source.endswith(("-start", "-update")):
                yield Fault(f"its operand should be a {' or '.join(wanted)}, not a {source}", c.name, i.name)
        if i.opcode in _ENDS:
            ends = [name for name in readers[i.name] if c[name].opcode.endswith(("-done", "-update"))]
            if len(ends) > 1:
                yield Fault(f"is ended {len(ends)} times, by %{', %'.join(ends)}", c.name, i.name)
            elif not ends and not i.is_root and readers[i.name] == ():
                yield Fault(f"needs a {' or '.join(_ENDS[i.opcode])} that reads it", c.name, i.name)
            elif len(readers[i.name]) > len(ends):
                other = next(name for name in readers[i.name] if name not in ends)
                yield Fault(f"can only be read by a {' or '.join(_ENDS[i.opcode])}, not by %{other}", c.name, i.name)
