"""The processor of this machine. Figures are measured."""

from __future__ import annotations

from jax_stitch.devices.targets.model import Target

HOST = Target(
    name="cpu",
    platform="cpu",
    is_host=True,
    lanes_are_vectors=True,
    packs_launches=False,
    shared_call_bytes=512 << 10,  # below, one thread runs a kernel: twice BYTES_PER_THREAD
    runs_sweeps_in_turn=True,
    weighs_alternatives=True,
    inlines_loops=True,
    has_sort_library=True,
    products_read_any_layout=False,
    most_operands=1 << 20,  # XLA:CPU has no limit
    launch_seconds=1.5e-6,
    phase_seconds=0.0,  # it has no kernels in phases
    kernel_seconds=0.15e-6,
    product_step_seconds=(0.35e-6, 0.1e-6),  # without products a loop is compiled as one
    product_call_seconds=1e-7,  # 60 to 150 ns, of some sizes 1.2 us
    product_share=0.85,
    new_pages=(32 << 20, 0.15e-9),  # DEFAULT_MMAP_THRESHOLD_MAX of glibc
    scatter_seconds=1e-9,  # one thread
    step_clocks=32.0,  # where the operands' places are not neighbours
    barrier_clocks=8.0,  # what one sweep has written, the next one loads
    loop_margin=1.25,  # of 8 unseen loops XLA took 1.1 to 3.2 times its estimate, ours 1.0 to 2.0 times
    operation_bytes=(0.35, 11.0),
    load_bytes=0.0,  # in vectors, beside arithmetic
    most_copies=(4, 2),
    row_statements=2000,  # g++ takes 4 s; the time grows with the square
    elements_in_turn=4,
)
