"""A planned program, operation by operation: XLA's final kernels and the stitched ones over the same operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from jax_stitch.graph.model import Graph

Kind = Literal["xla", "stitched", "library"]
NOWHERE = -1
"""The kernel of an operation that is no work of its own: a parameter, a constant, a view."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One HLO operation of the analysed program; those of loop bodies and branches follow their loop."""

    name: str
    """Its HLO name, with a number behind where several operations have one."""
    op: str
    type: str
    bytes: int
    """Size of its value."""
    flops: int
    """Arithmetic of one call of the function: every element of a result, or of what is reduced, counts once, a product
    twice for each pair.
    """
    operands: tuple[int, ...]
    """The operations that it reads. A loop's first operands lead into its body as well."""
    source: str
    """``file:line`` of the user's function, or empty."""
    scope: str
    """As in HLO's metadata: the named scopes around it, with JAX's transformations."""
    parent: int
    """The loop, branch or call whose body it is in, or ``NOWHERE``."""
    trips: int
    """How often it runs in a call of the function."""
    free: bool
    """Whether it is no work of its own: parameters, constants, one number everywhere."""
    result: bool
    """Whether the function returns it."""


@dataclass(frozen=True, slots=True)
class ProgramKernel:
    """One kernel of XLA's final program, or of the stitched one."""

    name: str
    title: str
    """By what the user wrote: scopes, forward or backward, lines."""
    kind: Kind
    launches: int
    """Per call of the function."""
    bytes: int
    """Of all its launches."""
    flops: int
    seconds: float
    """Predicted, of all its launches."""
    members: tuple[int, ...]
    """The operations that it computes and whose colour it has."""
    bound: int = 0
    """Of a stitched kernel the least bytes there can be: each value that it needs read once, each that others need
    written once. 0 for other kernels, which are counted that way anyway.
    """
    replaces: tuple[int, ...] = ()
    """Of a stitched kernel: the kernels of XLA's final program that nothing else needs any more."""
    shares: tuple[int, ...] = ()
    """Of a stitched kernel: those of which other parts are elsewhere."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one kernel reads of another's results, through device memory. ``NOWHERE`` is the caller."""

    producer: int
    consumer: int
    bytes: int
    """Of one launch of the consumer."""


@dataclass(frozen=True)
class Program:
    """The same operations under two sets of kernels."""

    kernels: tuple[ProgramKernel, ...]
    kernel_of: tuple[int, ...]
    """For each operation its kernel, or ``NOWHERE``. One that several kernels compute has the first of them."""
    transfers: tuple[Transfer, ...]
    op_bytes: tuple[float, ...]
    """For each operation its part of its kernel's bytes, what it reads of others and writes for them; and of the
    kernels that do a first step of it alone.
    """
    op_seconds: tuple[float, ...]
    """Its part of its kernel's predicted time: half of that goes by these bytes, half by the elements computed."""

    @cached_property
    def inside(self) -> tuple[frozenset[int], ...]:
        """Return the operations of each kernel."""
        return tuple(frozenset(k.members) for k in self.kernels)

    @property
    def seconds(self) -> float:
        """Return the predicted seconds of one call: the kernels one after the other."""
        return sum(k.seconds for k in self.kernels)


@dataclass(frozen=True)
class PlannedProgram:
    """What ``plan.program`` is: the operations, the kernels that XLA's final program has for them, and ours."""

    operations: tuple[Operation, ...]
    before: Program
    """XLA's default compilation, which ``jax.jit`` runs: the baseline of all figures."""
    after: Program
    """The stitched kernels, and XLA's for what is left."""
    computations: tuple[tuple[Graph, Mapping[int, int]], ...] = field(repr=False)
    """The graphs that the operations are of, with the operation that each of their nodes is."""

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield (producer, consumer) among the operations, each pair once."""
        for i, operation in enumerate(self.operations):
            for o in dict.fromkeys(operation.operands):
                yield o, i
