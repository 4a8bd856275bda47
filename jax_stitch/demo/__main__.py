"""Three functions under ``jax.jit`` and ``stitch_jit``: timed here, and planned for a GPU that need not be there."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax

from jax_stitch import devices
from jax_stitch.demo.cases import CASES, Case
from jax_stitch.demo.picture import Shown, picture
from jax_stitch.inspect.cli.command_errors import explained
from jax_stitch.inspect.cli.command_parser import new_file
from jax_stitch.inspect.report.compare import Comparison, compare
from jax_stitch.util import platform
from jax_stitch.util.formatting import format_faster, format_seconds, text_table
from jax_stitch.util.progress import Step, shown_steps

OK, FAILED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 if results disagree or something fails, 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m jax_stitch.demo", description=__doc__)
    parser.add_argument("--device", default="h200", help="the GPU to plan for (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="for timing each (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="sizes at which it is quick, and gains little")
    parser.add_argument("--picture", type=new_file, default=Path("demo.svg"), help="to write (default: %(default)s)")
    parser.add_argument("--source", action="store_true", help="print the largest kernel of each plan for that GPU")
    options = parser.parse_args(argv)
    try:
        platform.settle()
        devices.get(options.device)
        with shown_steps() as step:
            compared = [_compared(case, options, step) for case in CASES]
    except Exception as error:  # Whatever it is, it is said in a line or two.
        lines, status = explained(error)
        if status == FAILED:
            traceback.print_exception(error)
        print("error: " + "\n".join(lines), file=sys.stderr)
        return status
    if options.source:
        for _, comparison in compared:
            _print_source(comparison)
    print(table(compared, options.device))
    options.picture.write_text(_drawn(compared, options.device), encoding="utf-8")
    print(f"\n{options.picture} shows the kernels of both programs on the {options.device.upper()}.")
    return OK if all(comparison.agrees for _, comparison in compared) else FAILED


def _compared(case: Case, options: argparse.Namespace, step: Step) -> tuple[str, Comparison]:
    size = case.small if options.small else case.size
    title = f"{case.title} [{' x '.join(map(str, size))}]"
    step(f"{title}: making its arguments")
    function, args = case.make(*size)

    def said(what: str) -> None:
        step(f"{title}: {what}")

    return title, compare(function, *args, devices=(options.device,), seconds=options.seconds, step=said)


def table(compared: Iterable[tuple[str, Comparison]], device: str) -> str:
    """Return the table that says all of it at a glance."""
    there = device.upper()
    header = ("", "jax.jit here", "stitched", "", f"launches on {there}", "bytes over least", "results")
    rows = []
    for title, c in compared:
        plan = c.plans[-1]
        bound = plan.bound_bytes or 1
        rows.append(
            (
                title,
                format_seconds(c.plain.median),
                format_seconds(c.stitched.median),
                format_faster(c.stitched.median, c.plain.median),
                f"{plan.xla_launches:,} -> {plan.launches:,}",
                f"{plan.xla_bytes / bound:.2f} -> {plan.bytes / bound:.2f}",
                "agree" if c.agrees else "DISAGREE",
            )
        )
    where = f"Here: measured on this machine's {jax.devices()[0].device_kind}, both functions called in turn. "
    planned = f"{there}: counted on what XLA's compiler makes of both programs for it; none is needed."
    return f"{text_table(header, rows, right=(1, 2, 3, 4, 5))}\n\n{where}{planned}"


def _drawn(compared: Iterable[tuple[str, Comparison]], device: str) -> str:
    shown = []
    for title, c in compared:
        times = f"{format_seconds(c.plain.median)} under jax.jit, {format_seconds(c.stitched.median)} stitched"
        faster = format_faster(c.stitched.median, c.plain.median)
        shown.append(Shown(title, c.plans[-1], f"Measured on this machine's CPU: {times}, {faster}"))
    return picture(shown, f"Bytes that each kernel moves on the {device.upper()} (planned there, not measured)")


def _print_source(comparison: Comparison) -> None:
    plan = comparison.plans[-1]
    if plan.kernels:
        largest = max(plan.kernels, key=lambda kernel: len(kernel.ops))
        print(f"// {largest.name} for {plan.device.name}: {largest.launch}; {largest.schedule}\n{largest.source}\n")


if __name__ == "__main__":
    sys.exit(main())
