"""The interface between emitter and compiler: one kernel's text, its buffers, and how to launch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from jax_stitch.graph.model import TensorType


class KernelSource(Struct, frozen=True):
    """One stitched kernel as C++ against the runtime header (``backend/runtime/stitch.h``), which NVRTC and a host
    compiler both take.

    The text starts with ``#include "stitch.h"``. On CUDA it defines ``extern "C" __global__ void NAME(const void*
    in..., void* out...)``; on the host ``extern "C" void NAME(void** buffers, int64_t first_block, int64_t
    last_block)``, which runs the blocks [first, last). Buffers are the inputs, the outputs, then ``scratch``, all
    row-major. On the host one more pointer follows, to the memory where the threads of a call meet: 512 bytes, all zero
    before the first block of a phase, aligned to 64, and alive until the last block has ended; or null, and no thread
    helps another. In a kernel with ``helpers`` any one block does all of the work, or block 0 where it is null; the
    second 32-bit word there is nonzero afterwards if the helpers did not make the call shorter.

    A kernel of several phases needs a barrier of all blocks between them. On CUDA it has its own: its last parameter
    is then ``unsigned long long* arrivals``, a word of any content that no other launch uses while it runs; its
    ``grid`` blocks are resident together and take the blocks of each phase in turn. On the host the blocks of all
    phases are numbered consecutively, and the caller runs phase after phase.
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
    """Buffers after the outputs, used only while the kernel runs."""
    phases: tuple[int, ...] = ()
    """Blocks of each phase, where there are several."""
    cluster: int = 1
    """Blocks of the thread-block clusters that the CUDA side is compiled for."""
    helpers: int = 0
    """Additional blocks that the host's caller runs on other threads, which may take some of the first one's work."""
    aliases: tuple[tuple[int, int], ...] = ()
    """Pairs of an input's and an output's number: the output may be in the input's memory, or in its own."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Return its buffers and launch parameters: all but its name and its text."""
        buffers = self.inputs, self.outputs, self.scratch
        return (
            buffers,
            (self.grid, self.block, self.shared_bytes, self.phases, self.cluster, self.helpers),
            self.aliases,
        )

    @property
    def host_phases(self) -> tuple[int, ...]:
        """Return the number of blocks of each phase as the host's caller counts them."""
        return self.phases or (self.grid // self.cluster + self.helpers,)

    @property
    def waits(self) -> bool:
        """Return whether, on CUDA, there is a barrier of all blocks, so that all have to be resident together."""
        return any(barrier in self.text for barrier in ("ST_GRID_BARRIER", "ST_GRID_SYNC"))

    @property
    def has_wide_vectors(self) -> bool:
        """Return whether the widest vectors are faster on the host: without serial steps that each read what was just
        written and without scans (an eighth less time), or with products in blocks (``backend/runtime/product.h``).
        """
        return not (self.has_steps or "ST_SCAN(" in self.text) or "ST_PRODUCT" in self.text

    @property
    def has_steps(self) -> bool:
        """Return whether it runs the iterations of a loop of the program, one after the other."""
        return "for (index step" in self.text

    @property
    def computes_indices(self) -> bool:
        """Return whether an element's address depends on more than the induction variables of the loops around it."""
        return "index(" in self.code

    @property
    def has_doubles(self) -> bool:
        """Return whether it computes with doubles, some of whose functions host kernels call."""
        return "double" in self.code

    @property
    def code(self) -> str:
        """Return the text without its comments, which name lines of one user's program: this is compiled and cached."""
        return without_comments(self.text)


def without_comments(text: str) -> str:
    """Return C++ text without the lines that are comments; the emitter writes no comments elsewhere."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//"))
