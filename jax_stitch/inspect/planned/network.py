"""A plan as a ``networkx.DiGraph``, to be analysed with what people know.

Every graph has the attributes ``function``, ``device``, ``planner``, ``launches``, ``xla_launches``, ``bytes``,
``xla_bytes`` and ``bound_bytes``.

Of ``"operations"`` a node is an HLO operation, by its name; an edge leads from it to one that reads it.

====================== ==============================================================================================
node attribute         what it is
====================== ==============================================================================================
``op``, ``type``       HLO's operation and type: "reduce", "f32[8192]"
``bytes``              of its value
``flops``              arithmetic of all its runs in a call
``trips``              how often it runs in a call: more than once in a loop
``scope``, ``source``  the user's named scopes, and ``file:line``
``inside``             the loop or branch whose body it is in, or None
``free``               whether it is no work of its own: parameters, constants, views
``result``             whether the function returns it
``xla_kernel``         the kernel of XLA's final program that computes it, or None
``kernel``             that of the stitched program: a stitched one, or one that is left to XLA; or None
``xla_seconds``        its part of its kernel's predicted time, by bytes and arithmetic; ``seconds`` in the stitched one
``xla_bytes_moved``    its part of its kernel's traffic; ``bytes_moved`` in the stitched program
====================== ==============================================================================================

An edge has ``bytes`` (of the value), ``xla_memory`` and ``memory``: whether the value goes through device memory there
in XLA's program and in the stitched one.

Of ``"kernels"`` (the stitched program) and ``"xla_kernels"`` (XLA's final one) a node is a kernel, by its name, with
``~2``, ``~3`` behind it where kernels that are alike share one: ``title``, ``kind`` ("stitched", "xla", "library"),
``launches``, ``bytes``, ``bound``, ``flops``, ``seconds`` (of all launches), ``operations`` (names), and of stitched
ones ``replaces`` (names of kernels of XLA that are gone) and ``shares`` (those that it has a part of). An edge says
with ``bytes`` what a launch of the one reads of the other's results; the node ``"arguments"`` stands for the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import networkx

from jax_stitch.inspect.planned.model import NOWHERE, PlannedProgram, Program, ProgramKernel
from jax_stitch.util.suggestion import WrongOption

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

ARGUMENTS = "arguments"
KINDS = ("operations", "kernels", "xla_kernels")


def network(plan: Plan, of: str) -> networkx.DiGraph:
    """Return the graph of a plan. Raises ``ValueError`` for another kind than ``KINDS``."""
    if of not in KINDS:
        raise WrongOption(f"to_networkx(of={of!r}): there are graphs of {', '.join(map(repr, KINDS))}")
    graph = networkx.DiGraph(
        function=plan.function,
        device=plan.device.name,
        planner=str(plan.planner),
        launches=plan.launches,
        xla_launches=plan.xla_launches,
        bytes=plan.bytes,
        xla_bytes=plan.xla_bytes,
        bound_bytes=plan.bound_bytes,
    )
    program = plan.program
    if of == "operations":
        _add_operations(graph, program)
    elif of == "kernels":
        _add_kernels(graph, program, program.after, names_of(program.before.kernels))
    else:
        _add_kernels(graph, program, program.before, ())
    return graph


def names_of(kernels: Sequence[ProgramKernel]) -> list[str]:
    """Return a name for each kernel that no other has."""
    count: Counter[str] = Counter()
    names: list[str] = []
    for kernel in kernels:
        count[kernel.name] += 1
        names.append(kernel.name if count[kernel.name] == 1 else f"{kernel.name}~{count[kernel.name]}")
    return names


def _add_operations(graph: networkx.DiGraph, program: PlannedProgram) -> None:
    before, after = program.before, program.after
    xla, own = names_of(before.kernels), names_of(after.kernels)
    for i, o in enumerate(program.operations):
        graph.add_node(
            o.name,
            op=o.op,
            type=o.type,
            bytes=o.bytes,
            flops=o.flops,
            trips=o.trips,
            scope=o.scope,
            source=o.source,
            inside=None if o.parent == NOWHERE else program.operations[o.parent].name,
            free=o.free,
            result=o.result,
            xla_kernel=_name(xla, before.kernel_of[i]),
            kernel=_name(own, after.kernel_of[i]),
            xla_seconds=before.op_seconds[i],
            seconds=after.op_seconds[i],
            xla_bytes_moved=before.op_bytes[i],
            bytes_moved=after.op_bytes[i],
        )
    for p, c in program.edges():
        producer = program.operations[p]
        graph.add_edge(
            producer.name,
            program.operations[c].name,
            bytes=producer.bytes,
            xla_memory=_is_through_memory(program, before, p, c),
            memory=_is_through_memory(program, after, p, c),
        )


def _name(names: Sequence[str], kernel: int) -> str | None:
    return None if kernel == NOWHERE else names[kernel]


def _is_through_memory(program: PlannedProgram, side: Program, producer: int, consumer: int) -> bool:
    """Return whether a kernel reads what another one, or the caller, has written."""
    reader = side.kernel_of[consumer]
    if reader == NOWHERE or (side.kernel_of[producer] == NOWHERE and program.operations[producer].op != "parameter"):
        return False
    return producer not in side.inside[reader]


def _add_kernels(graph: networkx.DiGraph, program: PlannedProgram, side: Program, before: Sequence[str]) -> None:
    names = names_of(side.kernels)
    for name, kernel in zip(names, side.kernels, strict=True):
        graph.add_node(
            name,
            title=kernel.title,
            kind=kernel.kind,
            launches=kernel.launches,
            bytes=kernel.bytes,
            bound=kernel.bound,
            flops=kernel.flops,
            seconds=kernel.seconds,
            operations=tuple(program.operations[i].name for i in kernel.members),
            replaces=tuple(before[b] for b in kernel.replaces),
            shares=tuple(before[b] for b in kernel.shares),
        )
    for transfer in side.transfers:
        producer = ARGUMENTS if transfer.producer == NOWHERE else names[transfer.producer]
        graph.add_edge(producer, names[transfer.consumer], bytes=transfer.bytes)
