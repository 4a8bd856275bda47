"""The facts about a kind of device, whatever its size, that the stages go by."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["cuda", "cpu"]


class Target(Struct, frozen=True):
    """A kind of device: how kernels run there, what XLA does, and the cost of both.

    Properties are named for what differs, so that a decision says why it differs.
    """

    name: Kind
    """Data files about the target are named for it."""
    platform: str
    """The platform's name in JAX: "cpu" or "gpu"."""
    is_host: bool
    """Kernels are compiled by the host's C++ compiler and run on the processor that plans them, which can be measured;
    else they are compiled to PTX.
    """
    lanes_are_vectors: bool
    """A block is a task of one core and its lanes are the lanes of vectors, kept in arrays; else its lanes are threads
    with registers of their own, and shared memory and barriers between them.
    """
    packs_launches: bool
    """A launch costs so much that parts which have nothing to do with each other share one, and so do
    phases with a barrier of all blocks between them.
    """

    shared_call_bytes: int
    """Bytes' worth of work below which kernels that wait for the same other operations share a call; 0 where a call is
    one kernel."""
    runs_sweeps_in_turn: bool
    """A kernel needs no barrier between what one part writes and another reads: one thread does both. So straight code
    of any kind, as far as it stays in the cache, is one kernel.
    """
    weighs_alternatives: bool
    """Where a plan's kernels turn out to take much longer than estimated, other plans are scheduled as well: that takes
    milliseconds, and estimates are of operations and bytes alone, not of how a kernel reads them.
    """
    inlines_loops: bool
    """XLA compiles a loop's body into the program around it, so that a step with little work is no launch."""
    has_sort_library: bool
    """XLA calls a library to sort plain numbers, which is faster than a kernel of ours."""
    products_read_any_layout: bool
    """XLA's products read an operand as fast whichever way it lies."""
    most_operands: int
    """Operands and results of the largest fusion that XLA makes."""

    launch_seconds: float
    """The cost of one more kernel where the next one waits for it."""
    phase_seconds: float
    """The cost of one more phase of a kernel: all its blocks wait for each other."""
    kernel_seconds: float
    """The least time of each of XLA's kernels in the body of a loop: a launch; on a CPU a call."""
    product_step_seconds: tuple[float, float]
    """XLA's further time in a step of a loop that has matrix products: for each of these, and for each kernel."""
    product_call_seconds: float
    """XLA's further time for each of the products of a batch, where it calls a library for them one by one."""
    product_share: float
    """The share of its f32 operations per second that a device reaches in XLA's matrix products in loops."""
    new_pages: tuple[int, float]
    """The bytes from which on a result has new memory at every call, and the seconds that XLA's kernels take longer for
    each byte of it than ours, which ask the system for huge pages.
    """
    scatter_seconds: float
    """XLA's time for each element of the updates of a scatter."""
    step_clocks: float
    """Lanes' clocks of one multiplication and addition of a product that is written out: it loads two operands."""
    barrier_clocks: float
    """Clocks that a block's threads wait for each other."""
    loop_margin: float
    """The factor by which a cooperative loop has to be estimated faster than the work of XLA's kernels."""
    operation_bytes: tuple[float, float]
    """Bytes that could be moved in the time of one light and one heavy elementwise operation
    (``loops/cost/weights.py``)."""
    load_bytes: float
    """Bytes that could be moved in the time in which one element is loaded once more, from the nearest cache."""
    most_copies: tuple[int, int]
    """The most computations of each element of a light and a heavy operation in a kernel: windows read neighbours'."""
    row_statements: int
    """The most statements that a row of a loop is written out in: compilers take longer than linearly for them."""
    elements_in_turn: int
    """Elements that one accumulator takes in turn where a lane reduces many. On a CPU a lane takes more, and memory for
    accumulators costs nothing: XLA's CPU compiler sums in trees, and a large element among many small ones that are
    equal (label smoothing) shows the difference.
    """

    @property
    def calls_each_product(self) -> bool:
        """Return whether XLA calls a library for each product of a batch."""
        return self.product_call_seconds > 0
