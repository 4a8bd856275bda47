"""What the emitter hands to the compiler: one kernel's text, its buffers, and how to launch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from jax_stitch.graph.model import TensorType


class KernelSource(Struct, frozen=True):
    """One stitched kernel as C++ against the runtime header (``jax_stitch/runtime/stitch.h``), which NVRTC and a host
    compiler both take.

    The text starts with ``#include "stitch.h"``. On CUDA it defines ``extern "C" __global__ void NAME(const void*
    in..., void* out...)``; on the host ``extern "C" void NAME(void** buffers, int64_t first_block, int64_t
    last_block)``, which runs the blocks [first, last). Buffers are the inputs, the outputs, then ``scratch``, all
    row-major; on the host one more pointer comes after them, to where the threads of a call meet: 512 bytes, all zero
    before the first block of a phase and aligned to 64, which stay until the last has ended; or null, and no thread
    helps another. Of a kernel with ``helpers`` any one block does all of the work, or block 0 where it is null; the
    second word of 32 bits there is not zero afterwards where the others' help made the call no shorter.

    A kernel of several phases needs a barrier of all blocks between them. On CUDA it does this itself: its last
    parameter is then ``unsigned long long* arrivals``, a word of any content that no other launch has while it runs;
    its ``grid`` blocks fit the device together and take the blocks of each phase in turn. On the host the blocks of all
    phases are numbered through, and the caller runs phase after phase.
    """

    name: str
    text: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    grid: int
    """Number of blocks (one dimension), ``cluster`` of which make each of the blocks that the host numbers."""
    block: int
    """Threads per block (one dimension)."""
    shared_bytes: int
    """Dynamic shared memory per block, bytes."""
    scratch: tuple[TensorType, ...] = ()
    """Buffers after the outputs that the kernel only uses while it runs."""
    phases: tuple[int, ...] = ()
    """Blocks of each phase, where there are several."""
    cluster: int = 1
    """Blocks of the thread-block clusters that the CUDA side is compiled for."""
    helpers: int = 0
    """Blocks besides the first that the host's caller runs, by threads that may take some of its work."""
    aliases: tuple[tuple[int, int], ...] = ()
    """The numbers of an input and of the output that may be written over it, in the same memory or in another."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Its buffers and how it is launched: all but its name and its text."""
        buffers = self.inputs, self.outputs, self.scratch
        return (
            buffers,
            (self.grid, self.block, self.shared_bytes, self.phases, self.cluster, self.helpers),
            self.aliases,
        )

    @property
    def host_phases(self) -> tuple[int, ...]:
        """Blocks of each phase as the host's caller numbers them."""
        return self.phases or (self.grid // self.cluster + self.helpers,)

    @property
    def waits(self) -> bool:
        """Whether, on CUDA, blocks wait until all have come, so that all have to run at a time."""
        return any(barrier in self.text for barrier in ("ST_GRID_BARRIER", "ST_GRID_SYNC"))

    @property
    def has_wide_vectors(self) -> bool:
        """Whether, on the host, it is faster in vectors as wide as there are: without steps that go one after the
        other, each of which reads what was just written, and scans (an eighth less), or with products in blocks
        (``runtime/product.h``).
        """
        has_steps = "for (index step" in self.text or "ST_SCAN(" in self.text
        return not has_steps or "ST_PRODUCT" in self.text

    @property
    def computes_indices(self) -> bool:
        """Whether an element's place is computed by other means than from the loops around it."""
        return "index(" in self.code

    @property
    def has_doubles(self) -> bool:
        """Whether it computes with doubles, some of whose functions a host's kernels call."""
        return "double" in self.code

    @property
    def code(self) -> str:
        """The text without its comments, which name lines of one user's program: what is compiled and kept."""
        return without_comments(self.text)


def without_comments(text: str) -> str:
    """C++ without the lines that are comments; the emitter writes no others."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//"))
