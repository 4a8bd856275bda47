"""Outputs written over inputs that nobody needs any more, where the kernel reads and writes so that it may be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Literal, Ref
from jax_stitch.kernel.verify import unsafe


@dataclass(frozen=True, slots=True)
class Reuse:
    """The input and the output, by number, of a kernel that may be told to write the one over the other, as far as the
    program around it goes.
    """

    input: int
    output: int
    twins: tuple[int, ...] = ()
    """Other inputs that may come to be the very same array."""


def in_place(kernel: model.Kernel, wanted: Sequence[Reuse]) -> tuple[model.Kernel, tuple[tuple[int, int], ...]]:
    """A kernel that writes those of its outputs in place that may be, and which these are: the numbers of input and
    output.
    """
    found: dict[int, int] = {}
    for reuse in wanted:
        names = [kernel.inputs[k].name for k in (reuse.input, *reuse.twins)]
        target = kernel.outputs[reuse.output].name
        if reuse.input in found or reuse.output in found.values():
            continue
        if all(unsafe(kernel, name, target) is None for name in names):
            found[reuse.input] = reuse.output
    if not found:
        return kernel, ()
    over = {kernel.outputs[o].name: kernel.inputs[i].name for i, o in found.items()}
    return _written_over(kernel, over), tuple(sorted(found.items()))


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
    """A part whose parameters of these names are not the only ones in their memory."""
    if not names:
        return part
    parameters = tuple(replace(p, in_place=p.name in names) for p in part.parameters)
    outputs = {p.name for p in parameters if p.written}
    return replace(part, parameters=parameters, body=_stores_last(part.body, outputs))


def _stores_last(body: Any, outputs: Collection[str]) -> Any:
    """Statements with those that write outputs behind those that only name values: a compiler that cannot tell one
    buffer from another moves no read in front of a write, and reads that go out together take the time of one.
    """
    found: list[Any] = []
    stores: list[Any] = []
    for s in body:
        inner = _inside(s, outputs)
        if _is_store(inner, outputs):
            stores.append(inner)
        elif isinstance(inner, st.Define):
            found.append(inner)
        else:
            found += [*stores, inner]
            stores = []
    return (*found, *stores)


def _inside(s: Any, outputs: Collection[str]) -> Any:
    """A statement with the same done to the statements in it."""
    if isinstance(s, st.ScanPass | st.Sums):
        return s
    changed = {
        f.name: _stores_last(value, outputs)
        for f in fields(s)
        if isinstance(value := getattr(s, f.name), tuple) and value and all(map(is_dataclass, value))
    }
    return replace(s, **changed) if changed and isinstance(s, _HOLDING) else s


_HOLDING = (st.Rows, st.Pass, st.Segment, st.Scope, st.Items)


def _is_store(s: Any, outputs: Collection[str]) -> bool:
    """Whether a statement writes a value that has a name, which stays what it is, to an output."""
    assign = s.does if isinstance(s, st.Only) else s
    return (
        isinstance(assign, st.Assign)
        and isinstance(assign.target, Element)
        and assign.target.array in outputs
        and isinstance(assign.value, Ref | Literal)
    )
