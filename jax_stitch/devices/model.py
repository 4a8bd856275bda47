"""What the stages know of a device."""

from __future__ import annotations

from dataclasses import dataclass, field

from jax_stitch.devices.targets import Kind, Target, target_of
from jax_stitch.devices.tensor_cores import MatrixUnit, matrix_unit


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or the CPU, as the planner, the scheduler and the compilers see it. Sizes are in bytes.

    A CPU is described in the words of a GPU: a core is a multiprocessor, the lanes of a vector of f32 are a warp, the
    level-1 data cache is the shared memory of a block, and the level-2 cache what a block may opt into.
    """

    name: str
    """What ``get`` takes: "h200", "cpu"; of an attached GPU outside the table, its product name in that style."""
    kind: Kind
    description: str
    compute_capability: tuple[int, int] | None
    """(9, 0) for sm_90; None on a CPU."""
    multiprocessors: int
    """Streaming multiprocessors; on a CPU the cores that this process may use."""
    threads_per_multiprocessor: int
    threads_per_block: int
    warp_size: int
    """Threads of a warp; on a CPU the f32 lanes of a vector."""
    registers_per_multiprocessor: int
    """32-bit registers; on a CPU the f32 lanes of all vector registers."""
    shared_per_block: int
    """Shared memory of a block without opting in; on a CPU the level-1 data cache."""
    shared_per_block_optin: int
    """The most shared memory that a block can have; on a CPU the level-2 cache."""
    shared_per_multiprocessor: int
    l2_bytes: int
    """The cache that all multiprocessors share: level 2 on a GPU, the last level on a CPU."""
    memory_bytes: int
    memory_bandwidth: float
    """Bytes per second, reads and writes together: the data sheet's on a GPU, measured on a CPU."""
    clock_ghz: float
    fp32_lanes: int
    """f32 operations that one multiprocessor starts per clock; of a CPU's core, those of one of its vector units."""
    kernel_parameter_bytes: int
    """The most bytes of parameters that one kernel takes."""
    blocks_may_wait: bool = True
    """Whether the blocks of a launch may wait for each other: not beside kernels of collectives, which hold
    multiprocessors for as long as those of other devices take."""
    attached: bool = False
    """Whether JAX can run programs on it in this process."""
    target_config: str | None = field(default=None, repr=False)
    """The text proto by which XLA compiles for the device unattached; None where it has to be attached."""

    @property
    def target(self) -> Target:
        """Return what is common to all devices of its kind."""
        return target_of(self.kind)

    @property
    def compiles_here(self) -> bool:
        """Return whether JAX compiles for it in this process: it is attached, or a CPU."""
        return self.attached or self.target.is_host

    @property
    def clocks_per_vector(self) -> int:
        """Return the clocks for which a CPU's vector unit is busy with a vector: 2 where it has half as many lanes."""
        return max(1, self.warp_size // self.fp32_lanes) if self.target.lanes_are_vectors else 1

    @property
    def cluster_blocks(self) -> int:
        """Return the blocks of the largest thread-block cluster that every such device launches (CUDA programming
        guide: 8 are portable), or a part of one that has a multiprocessor for each of them; 1 if there are no clusters.
        """
        if self.compute_capability is None or self.compute_capability < (9, 0):
            return 1
        return min(8, 1 << (self.multiprocessors.bit_length() - 1))

    @property
    def fetches_rows(self) -> bool:
        """Return whether a unit of its own copies whole rows to a block's shared memory, past the registers of its
        threads: the bulk copies of ``cp.async.bulk``, from sm_90 on.
        """
        return self.compute_capability is not None and self.compute_capability >= (9, 0)

    def matrix_unit(self, dtype: str) -> MatrixUnit | None:
        """Return how tensor cores multiply factors of an element type; None where there are none for it."""
        return matrix_unit(self.compute_capability, dtype)

    def blocks_with_shared(self, shared_bytes: int) -> int:
        """Return the blocks with so much static and dynamic shared memory that a multiprocessor of a GPU has room for,
        as NVIDIA's occupancy calculator has it: from sm_80 on each block takes a kilobyte more, which the driver has
        for itself.
        """
        assert self.compute_capability is not None
        ampere = self.compute_capability >= (8, 0)
        unit = 128 if ampere else 256
        taken = -(-shared_bytes // unit) * unit + (1024 if ampere else 0)
        return self.shared_per_multiprocessor // taken if taken else 1 << 30

    @property
    def sm(self) -> str | None:
        """Return the architecture's name for NVIDIA's compilers: "sm_90"; None on a CPU."""
        if self.compute_capability is None:
            return None
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    def __str__(self) -> str:
        cores = "cores" if self.target.is_host else "multiprocessors"
        bandwidth = f"{self.memory_bandwidth / 1e9:,.0f} GB/s"
        return f"{self.name}: {self.description}, {self.multiprocessors} {cores}, {bandwidth}"
