"""From a file, or text, to a program: recognised, chosen, read, checked, and translated for XLA."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jax

import hlo_parser
from hlo_parser import ELEMENT_TYPES, ArrayShape, Instruction, Module, Shape, TupleShape
from jax_stitch.frontend.capture.errors import HloFileError
from jax_stitch.frontend.hlo_files.constants import with_values
from jax_stitch.frontend.hlo_files.content import content_of
from jax_stitch.frontend.hlo_files.modules import Chosen, choose
from jax_stitch.frontend.hlo_files.opened import is_optimized, opened
from jax_stitch.frontend.hlo_files.program import HloProgram
from jax_stitch.frontend.hlo_files.returned import with_returned_copies
from jax_stitch.frontend.hlo_files.translate import stablehlo_of
from jax_stitch.graph.rewrites.library_calls import restored
from jax_stitch.util.formatting import one_line, shorten
from jax_stitch.util.python_targets import is_python_call

_WIDE = frozenset({"s64", "u64", "f64", "c128"})
_TALKS = frozenset({"infeed", "outfeed", "send", "recv"})


def read(
    source: str | os.PathLike[str] | bytes, module: str | int | None = None, optimize: bool | None = None
) -> HloProgram:
    """Return the program in ``source``: a path, text or data, in any form that ``content`` recognises.

    Raises HloFileError.

    ``module`` chooses one of several, by name or number. ``optimize`` says whether XLA's passes run before it is
    planned; by default, if they have not run yet.
    """
    chosen = choose(content_of(source), module)
    _check(chosen)
    given, elided = with_values(chosen.module)
    late = is_optimized(given)
    as_it_is = late if optimize is None else not optimize
    own = with_returned_copies(given) if as_it_is else given
    given = restored(own)
    plain = opened(given) if late else given
    entry = given.entry
    leaves = [leaf for p in entry.parameters for leaf in _leaves(p.shape, p.name)]
    results = [_type(shape) for shape, _ in _leaves(entry.root.shape, "")]
    notes = [*chosen.notes]
    if elided:
        notes.append(f"{elided} constants have no value in the text ({{...}}): others are in their places")
    partitions, text = given.attributes.get("num_partitions", 1), str(given)
    return HloProgram(
        name=given.name,
        where=chosen.where,
        parameters=tuple(_type(shape) for shape, _ in leaves),
        names=tuple(name for _, name in leaves),
        results=tuple(results),
        single=isinstance(entry.root.shape, ArrayShape),
        optimized=as_it_is,
        partitions=partitions,
        text=text,
        own_text=text if own is given else str(own),
        stablehlo=stablehlo_of(plain, chosen.where),
        plain=plain,
        unrunnable=_unrunnable(given, elided),
        calls_lapack=any(_target(i).startswith("lapack_") for i in _instructions(given)),
        needs_x64=any(s.dtype in _WIDE for i in _instructions(given) for s, _ in _arrays(i.shape)),
        notes=tuple(notes),
    )


def _check(chosen: Chosen) -> None:
    """Raise HloFileError for what is wrong, and for what no kernel can be made of."""
    module, where = chosen.module, chosen.where
    faults = hlo_parser.verify(module)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        told = shorten(one_line(str(faults[0])), 300)
        raise HloFileError(
            f"{where} is no valid program: {told}{more}\nmend it there; `python -m hlo_parser check FILE` lists all"
        )
    for i in _instructions(module):
        if any(s.dynamic for s, _ in _arrays(i.shape)):
            raise HloFileError(
                f"{where}: {i.name} has a dynamic shape, {i.shape}\ngive a program of fixed shapes, for each size one"
            )
    for i in (*module.entry.parameters, module.entry.root):
        odd = next((s for s in _every(i.shape) if not isinstance(s, ArrayShape)), None)
        if odd is not None:
            what = "takes" if i.opcode == "parameter" else "returns"
            raise HloFileError(
                f"{where}: its entry {what} {i.name}, a {odd}\ngive a program that takes and returns arrays"
            )


def _unrunnable(module: Module, elided: int) -> str | None:
    partitions, replicas = (module.attributes.get(key, 1) for key in ("num_partitions", "replica_count"))
    if partitions > 1:
        return f"it is for {partitions} devices at once (num_partitions); plan it, or dump it for one device"
    if replicas > 1:
        return f"it is for {replicas} devices at once (replica_count); plan it, or dump it for one device"
    if elided:
        return f"{elided} constants have no value in the text ({{...}}): dump it with --xla_dump_large_constants"
    for i in _instructions(module):
        target = _target(i)
        if i.opcode in _TALKS:
            return f"it talks to the host or to other programs ({i.opcode} {i.name}); plan it, or cut that out"
        if is_python_call(target) or "callback" in target:
            return f"it calls Python of the process that made it ({i.name}); plan it, or cut that out"
    return None


def _instructions(module: Module) -> Iterator[Instruction]:
    return (i for c in module.computations for i in c)


def _target(i: Instruction) -> str:
    return str(i.attributes.get("custom_call_target", ""))


def _every(shape: Shape) -> Iterator[Shape]:
    """Return the leaves of a shape, of whatever kind."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _every(element)
    else:
        yield shape


def _arrays(shape: Shape) -> Iterator[tuple[ArrayShape, str]]:
    return ((s, "") for s in _every(shape) if isinstance(s, ArrayShape))


def _leaves(shape: Shape, name: str) -> Iterator[tuple[ArrayShape, str]]:
    """Return the arrays in a shape, with their names."""
    if isinstance(shape, TupleShape):
        for n, element in enumerate(shape.elements):
            yield from _leaves(element, f"{name}[{n}]")
    elif isinstance(shape, ArrayShape):
        yield shape, name


def _type(shape: ArrayShape) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.dims, ELEMENT_TYPES[shape.dtype].numpy)
