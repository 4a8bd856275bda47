"""The processor of this machine. Figures are measured."""

from __future__ import annotations

from jax_stitch.targets.model import Target

HOST = Target(
    name="cpu",
    platform="cpu",
    is_host=True,
    lanes_are_vectors=True,
    packs_launches=False,
    inlines_loops=True,
    has_sort_library=True,
    products_read_any_layout=False,
    products_take_prologues=False,
    most_operands=1 << 20,  # XLA:CPU has no limit
    launch_seconds=1.5e-6,
    kernel_seconds=0.15e-6,
    product_call_seconds=1e-7,  # 60 to 150 ns, of some sizes 1.2 us
    product_share=0.95,
    step_clocks=32.0,  # where the operands' places are not neighbours
    barrier_clocks=0,
    loop_margin=1.75,  # little is gained by not launching: only for sure
    operation_bytes=(0.35, 5.5),
    most_copies=(4, 2),
    elements_in_turn=4,
)
