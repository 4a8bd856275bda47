"""NVIDIA's GPUs."""

from __future__ import annotations

from jax_stitch.devices.targets.model import Target

CUDA = Target(
    name="cuda",
    platform="gpu",
    is_host=False,
    lanes_are_vectors=False,
    packs_launches=True,
    shared_call_bytes=0,  # a launch is a kernel
    runs_sweeps_in_turn=False,
    weighs_alternatives=False,
    inlines_loops=False,
    has_sort_library=False,
    products_read_any_layout=True,
    most_operands=96,  # ``MaxOperandsAndOutputsPerFusion`` of XLA:GPU
    launch_seconds=2.5e-6,
    phase_seconds=1.1e-6,  # as ``start`` in the latency-evaluator's constants
    kernel_seconds=2.5e-6,
    product_step_seconds=(0.0, 0.0),
    product_call_seconds=0.0,
    product_share=0.5,
    new_pages=(0, 0.0),
    scatter_seconds=0.0,  # a store each, from all threads
    step_clocks=8.0,  # loads have a quarter of the rate of arithmetic
    barrier_clocks=60,
    loop_margin=1.0,
    operation_bytes=(0.1, 2.0),
    load_bytes=0.4,  # a quarter of the rate of arithmetic
    most_copies=(16, 4),
    row_statements=8000,
    elements_in_turn=32,
)
