"""Runs the training step under ``jax.jit`` and ``stitch_jit`` here, and plans it for a GPU that need not be there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import jax.numpy as jnp
from rich.console import Console
from rich.syntax import Syntax

from jax_stitch import devices
from jax_stitch.capture.errors import CaptureError
from jax_stitch.report.compare import Comparison, compare
from jax_stitch.util import platform
from jax_stitch.util.progress import shown_steps


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if results disagree or the GPU cannot be planned for, 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m jax_stitch.demo", description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=(8, 128, 256), metavar=("BATCH", "LENGTH", "FEATURES"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="h200", help="the GPU to plan for (default: %(default)s)")
    parser.add_argument("--html", metavar="FILE", help="write that plan as a page")
    options = parser.parse_args(argv)
    if options.size[2] % 4:
        parser.error("FEATURES must be a multiple of 4, the number of attention heads")
    platform.settle()
    try:
        devices.get(options.device)
    except devices.UnknownDeviceError as error:
        parser.error(str(error))

    from jax_stitch.demo.block import make_training_step

    console = Console()
    with shown_steps() as step:
        step("making a Transformer block and its optimizer state")
        function, args = make_training_step(tuple(options.size), jnp.dtype(options.dtype))
        try:
            comparison = compare(function, *args, devices=(options.device,), seconds=6.0, step=step)
        except CaptureError as error:
            console.print(f"[red]error:[/] {error}", highlight=False)
            return 1
    _show(console, comparison)
    if options.html:
        console.print(f"wrote {comparison.plans[-1].to_html(options.html)}")
    return 0 if comparison.agrees else 1


def _show(console: Console, comparison: Comparison) -> None:
    plan = comparison.plans[-1]
    if plan.kernels:
        stitched = zip(plan.kernels, plan.program.after.kernels, strict=False)
        largest, counted = max(stitched, key=lambda pair: len(pair[0].ops))
        console.rule(f"largest stitched kernel for {plan.device.name}: {largest.name}")
        console.print(
            f"{len(largest.ops)} HLO instructions in place of {plan.replaced(counted)} launches of XLA's program; "
            f"{'+'.join(largest.composition)}; {largest.launch}; {largest.schedule}",
            highlight=False,
        )
        console.print(Syntax(largest.source, "cpp", background_color="default", word_wrap=True))
    console.rule("jax.jit and stitch_jit")
    console.print(str(comparison), highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())
