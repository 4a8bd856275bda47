"""Whether an output may be written over an input, in the same memory.

It may where each element of the input is read only by the thread that writes the output's element at the same index,
and only before it does; or where a barrier of all who read it stands before that. What is not known counts as no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.forms import axes_of
from jax_stitch.kernel.model import Call, Kernel, Part, RowShape
from jax_stitch.kernel.threads import Reach, Who
from jax_stitch.kernel.verify.bounds import inside, values_of
from jax_stitch.kernel.verify.finding import Finding
from jax_stitch.kernel.verify.writes import WriteCheck, counts_of, inner_ranges

Thread = tuple[Any, ...] | None
"""How the thread follows from the row and the place: accesses with equal ones, at the same row and place, are of the
same thread. None may be of any.
"""


def alias_findings(kernel: Kernel) -> Iterator[Finding]:
    """Yield outputs that are written over inputs although that may change results, or the compiler is not told.

    The kernel has no other faults.
    """
    taken: set[str] = set()
    shared: set[str] = set()
    aliases = Aliases(kernel)
    for output in kernel.outputs:
        if not output.over:
            continue
        reason = aliases.unsafe(output.over, output.name)
        if output.over in taken:
            reason = "another output is too"
        if reason is not None:
            yield Finding(kernel.name, f"{output.name} is written over {output.over}: {reason}")
        taken.add(output.over)
        shared |= {output.name, output.over}
    for call in (c for phase in kernel.phases for c in phase.calls):
        part = kernel.parts[call.part]
        for p, name in zip(part.parameters, call.arguments, strict=True):
            if name in shared and not p.in_place:
                yield Finding(part.name, f"{p.name} is given {name}, and said to be the only one in its memory")


class Aliases:
    """What may share memory in one kernel. Each of its parts is gone through once, however many pairs are asked for."""

    def __init__(self, kernel: Kernel):
        self._kernel = kernel
        self._known: dict[Call, _Accesses] = {}
        self._inputs, self._outputs = ({b.name: b for b in of} for of in (kernel.inputs, kernel.outputs))
        self._writers: dict[str, list[tuple[int, Call]]] = {}
        self._readers: dict[str, list[tuple[int, Call]]] = {}
        for number, call in ((n, c) for n, phase in enumerate(kernel.phases) for c in phase.calls):
            for name in _written(kernel, call):
                self._writers.setdefault(name, []).append((number, call))
            for name in dict.fromkeys(call.arguments):
                self._readers.setdefault(name, []).append((number, call))

    def unsafe(self, input_name: str, output_name: str) -> str | None:
        """Return why an output may not be written over an input; None where it may."""
        kernel = self._kernel
        source, target = self._inputs.get(input_name), self._outputs.get(output_name)
        if source is None or target is None:
            return "there is no such input or output"
        if (source.dtype, source.dims) != (target.dtype, target.dims):
            return "their types differ"
        if len(kernel.phases) > 1 and not kernel.launch.resident:
            return "its phases are not known to follow each other"
        writers = self._writers.get(output_name, [])
        if len(writers) != 1:
            return "it is not one part's to write"
        ((phase, writer),) = writers
        for number, call in self._readers.get(input_name, []):
            if number < phase:
                continue
            if call is not writer:
                return "another part reads it, and does not do so before"
            if (reason := self._in_part(call, input_name, output_name)) is not None:
                return reason
        return None

    def _in_part(self, call: Call, input_name: str, output_name: str) -> str | None:
        """Return the same where both are done by one part."""
        part = self._kernel.parts[call.part]
        names = {name: p.name for p, name in zip(part.parameters, call.arguments, strict=True)}
        read, written = names[input_name], names[output_name]
        if call not in self._known:
            self._known[call] = _Accesses(part, call.last - call.first)
        accesses = self._known[call]
        if not accesses.written_once(written):
            return "it is not known that each element is written once"
        if accesses.outside & {read, written}:
            return "it is read for all rows at once"
        for one in accesses.of[read]:
            for other in accesses.of[written]:
                if (reason := _clash(one, other, accesses)) is not None:
                    return reason
        return None


def _written(kernel: Kernel, call: Call) -> list[str]:
    parameters = kernel.parts[call.part].parameters
    return [name for p, name in zip(parameters, call.arguments, strict=True) if p.written]


_OF_ROWS = 0
"""The number of all loops over rows, among those of passes."""


class _Access(Struct, frozen=True):
    at: Expr
    when: int
    """In the order of the statements."""
    thread: Thread
    ranges: Mapping[str, int]
    stretch: tuple[int, int, int] | None
    """The pass and its places, where it has several stretches; or the rows, where several loops share them out."""


def _clash(read: _Access, write: _Access, accesses: _Accesses) -> str | None:
    """Return why a read may see what is written."""
    if read.at.terms != write.at.terms or read.at.offset != write.at.offset:
        return "an element is read where another one is written"
    variables = {v.name for v in write.at.variables()}
    if not variables <= accesses.positions or any(read.ranges[v] > write.ranges[v] for v in variables):
        return "an element is read that is written at another place"
    if read.stretch is not None and write.stretch is not None and read.stretch != write.stretch:
        (of, low, high), (of_other, low_of_other, high_of_other) = read.stretch, write.stretch
        if of == of_other and (high <= low_of_other or high_of_other <= low):
            return None
        if of != of_other and _OF_ROWS not in (of, of_other):
            return "its places are shared out in other stretches"
    if read.when > write.when:
        return "an element is read after it is written"
    met = any(read.when < barrier < write.when for barrier in accesses.barriers)
    if not met and (read.thread is None or read.thread != write.thread):
        return "an element is read by another thread than the one that writes it"
    return None


class _Accesses:
    """Goes through a part and gathers where it reads and writes its buffers, and its barriers."""

    def __init__(self, part: Part, blocks: int):
        self._clock = 0
        self._check = WriteCheck(part, blocks)
        self._sound = not list(self._check.findings())
        self._once: dict[str, bool] = {}
        self._written = {p.name for p in part.parameters if p.written}
        self.of: dict[str, list[_Access]] = {p.name: [] for p in part.parameters}
        """Those of each buffer, in the order of the statements."""
        self.barriers: list[int] = []
        """That all threads of a row come to."""
        self.outside: set[str] = set()
        """The buffers that are read or written outside of the rows."""
        shape = part.shape
        rows = counts_of(shape)
        self.positions = set(rows)
        """The variables of rows, and of places that lanes share out."""
        self._one_lane = self._in_one_block = False
        if isinstance(shape, RowShape):
            self._in_one_block = shape.cluster == 1
            self._one_lane = shape.lanes == 1 and shape.cluster == 1
        else:
            self._in_one_block = not shape.spread
        for s in part.body:
            self._statement(s, rows, None, None, True)
        inside = {name: len(accesses) for name, accesses in self.of.items()}
        for s in (*part.before, *part.after):
            self._statement(s, {}, None, None, False)
        self.outside = {name for name, accesses in self.of.items() if len(accesses) > inside[name]}

    def written_once(self, name: str) -> bool:
        """Return whether each element of an output is known to be written, and once."""
        if name not in self._once:
            self._once[name] = self._sound and self._check.surely(name)
        return self._once[name]

    def _statement(self, s: Any, ranges: Mapping[str, int], thread: Thread, stretch: Any, top: bool) -> None:
        self._clock += 2
        if isinstance(s, st.Barrier) and top and (self._in_one_block or s.reach is Reach.GRID):
            self.barriers.append(self._clock)
        if isinstance(s, st.Assign) and s.who is not None:
            thread = self._one(s.who, thread)
        for value in values_of(s):
            if isinstance(value, ex.Element) and value.array in self.of:
                when = self._clock + (value.array in self._written)
                self.of[value.array].append(_Access(value.at, when, thread, ranges, stretch))
        within = inner_ranges(s, ranges)
        self.positions |= {getattr(s, name).variable for name in axes_of(type(s)) if not isinstance(s, st.Steps)}
        for child in inside(s):
            own, of = self._inner(s, child, thread, stretch)
            self._statement(child, within, own, of, top and isinstance(s, st.Scope))

    def _one(self, who: Who, thread: Thread) -> Thread:
        """Return the thread where only some do a statement."""
        if who is Who.FIRST_LANE:
            return thread if self._one_lane else ("first lane",)
        return None

    def _inner(self, s: Any, child: Any, thread: Thread, stretch: Any) -> tuple[Thread, Any]:
        """Return the thread, and the stretch of the pass, that a node inside a statement is done by."""
        row: Thread = (ROW,) if self._one_lane else None
        match s:
            case st.Rows(_, low, high):
                return row, None if high is None else (_OF_ROWS, low, high)
            case st.Pass(first_row_only=True):
                return None, None
            case st.Pass():
                if not isinstance(child, st.Stretch):
                    return None, None
                bounds = tuple((g.low, g.high) for g in s.stretches)
                several = (id(s), child.low, child.high) if len(s.stretches) > 1 else None
                return row or ("pass", s.size, s.period, s.vector, bounds), several
            case st.ScanPass():
                if not isinstance(child, st.ScanStep):
                    return None, None
                return row or ("scan", s.size, s.batch, s.backward), None
            case st.Items():
                return ("items", s.run.extent, s.lane.extent), None
            case st.Sums():
                shared = isinstance(child, st.Steps | st.Sum)
                return (None if shared else ("sums", s.run.extent, s.lane.extent, s.split)), None
        return thread, stretch
