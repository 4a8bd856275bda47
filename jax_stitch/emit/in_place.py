"""Outputs written over inputs that nobody needs any more, where the kernel reads and writes so that it may be done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from msgspec import Struct

from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Literal, Ref, type_of
from jax_stitch.kernel.threads import Who
from jax_stitch.kernel.verify import Aliases
from jax_stitch.kernel.walk import map_bodies, nodes
from jax_stitch.util.values import replace


class Reuse(Struct, frozen=True):
    """The input and the output, by number, of a kernel that may be told to write the one over the other, as far as the
    program around it goes.
    """

    input: int
    output: int
    twins: tuple[int, ...] = ()
    """Other inputs that may come to be the very same array."""


def in_place(kernel: model.Kernel, wanted: Sequence[Reuse]) -> tuple[model.Kernel, tuple[tuple[int, int], ...]]:
    """Return a kernel that writes those of its outputs in place that may be, and which these are: the numbers of input
    and output.
    """
    over_inputs = _possible(kernel, wanted)
    rest = [w for w in wanted if w.input not in over_inputs and w.output not in over_inputs.values()]
    more = _possible(_meeting(kernel, _targets(kernel, (w.output for w in rest))), rest) if rest else {}
    if more:
        kernel = _meeting(kernel, _targets(kernel, more.values()))
        over_inputs |= more
    if not over_inputs:
        return kernel, ()
    over = {kernel.outputs[o].name: kernel.inputs[i].name for i, o in over_inputs.items()}
    return _written_over(kernel, over), tuple(sorted(over_inputs.items()))


def reads(kernel: model.Kernel) -> int:
    """Return how many places of a kernel's text read its buffers."""
    count = 0
    for part in kernel.parts:
        names = {p.name for p in part.parameters if not p.written}
        count += sum(isinstance(n, Element) and n.array in names for n in nodes(part))
    return count


def _possible(kernel: model.Kernel, wanted: Sequence[Reuse]) -> dict[int, int]:
    """Return the outputs, by input, that may be written in place; each at most once."""
    output_of: dict[int, int] = {}
    aliases = Aliases(kernel)
    for reuse in wanted:
        names = [kernel.inputs[k].name for k in (reuse.input, *reuse.twins)]
        target = kernel.outputs[reuse.output].name
        if reuse.input in output_of or reuse.output in output_of.values():
            continue
        if all(aliases.unsafe(name, target) is None for name in names):
            output_of[reuse.input] = reuse.output
    return output_of


def _targets(kernel: model.Kernel, outputs: Iterable[int]) -> frozenset[str]:
    return frozenset(kernel.outputs[o].name for o in outputs)


def _meeting(kernel: model.Kernel, targets: Collection[str]) -> model.Kernel:
    """Return a kernel in which the threads of a row, who all compute what one of them writes to these outputs, meet
    before.
    """
    parts = list(kernel.parts)
    for call in (c for phase in kernel.phases for c in phase.calls):
        part = parts[call.part]
        names = {p.name for p, given in zip(part.parameters, call.arguments, strict=True) if given in targets}
        if names and isinstance(part.shape, model.RowShape) and part.shape.cluster == 1 and part.shape.lanes > 1:
            parts[call.part] = replace(part, body=_met(part.body, names))
    return replace(kernel, parts=tuple(parts))


def _met(body: st.Body, names: Collection[str]) -> st.Body:
    """Return rows' statements with writes to these outputs behind a barrier; what is written stands in the row's own
    value meanwhile.
    """
    met: list[st.Statement] = []
    for s in body:
        if isinstance(s, st.Scope):
            s = st.Scope(_met(s.body, names))
        rows = s.body if isinstance(s, st.Rows) else ()
        own_writes = [inner for inner in rows if _is_one_lanes(inner, names)]
        if not own_writes:
            met.append(s)
            continue
        held: list[st.Statement] = []
        writes: list[st.Statement] = []
        for write in own_writes:
            target, value = write.target, write.value
            assert isinstance(target, Element)
            cell = Ref(f"{target.array}_of_row_{len(met)}", type_of(value))
            met.append(st.Allocate.of_row(cell.name, cell.dtype))
            held.append(st.Assign(cell, value))
            writes.append(st.Assign(target, cell, write.who))
        others = tuple(inner for inner in rows if inner not in own_writes)
        met += [st.Rows((*others, *held)), st.Barrier(), st.Rows(tuple(writes))]
    return tuple(met)


def _is_one_lanes(s: Any, names: Collection[str]) -> TypeGuard[st.Assign]:
    return isinstance(s, st.Assign) and s.who is Who.FIRST_LANE and _is_write(s, names)


def _written_over(kernel: model.Kernel, over: Mapping[str, str]) -> model.Kernel:
    outputs = tuple(replace(b, over=over.get(b.name, "")) for b in kernel.outputs)
    shared = {*over, *over.values()}
    given: dict[int, set[str]] = {}
    for call in (c for phase in kernel.phases for c in phase.calls):
        names = zip(kernel.parts[call.part].parameters, call.arguments, strict=True)
        given.setdefault(call.part, set()).update(p.name for p, name in names if name in shared)
    parts = tuple(_sharing(part, given.get(k, set())) for k, part in enumerate(kernel.parts))
    return replace(kernel, outputs=outputs, parts=parts)


def _sharing(part: model.Part, names: Collection[str]) -> model.Part:
    """Return a part whose parameters of these names are not the only ones in their memory."""
    if not names:
        return part
    parameters = tuple(replace(p, in_place=p.name in names) for p in part.parameters)
    outputs = {p.name for p in parameters if p.written}
    return replace(part, parameters=parameters, body=_writes_last(part.body, outputs))


def _writes_last(body: Any, outputs: Collection[str]) -> Any:
    """Return statements with those that write outputs behind those that only name values: a compiler that cannot tell
    one buffer from another moves no read in front of a write, and reads that go out together take the time of one.
    """
    others: list[Any] = []
    writes: list[Any] = []
    for s in body:
        inner = _inside(s, outputs)
        if _is_write(inner, outputs):
            writes.append(inner)
        elif isinstance(inner, st.Define):
            others.append(inner)
        else:
            others += [*writes, inner]
            writes = []
    return (*others, *writes)


def _inside(s: Any, outputs: Collection[str]) -> Any:
    """Return a statement with the same done to the statements in it."""
    return map_bodies(s, lambda body: _writes_last(body, outputs)) if isinstance(s, _HOLDING) else s


_HOLDING = (st.Rows, st.Pass, st.Scope, st.Items)


def _is_write(s: Any, outputs: Collection[str]) -> bool:
    """Return whether a statement writes a value that has a name, which stays what it is, to an output."""
    return (
        isinstance(s, st.Assign)
        and isinstance(s.target, Element)
        and s.target.array in outputs
        and isinstance(s.value, Ref | Literal)
    )
