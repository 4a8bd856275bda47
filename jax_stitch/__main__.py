"""``python -m jax_stitch``: plans and comparisons of a function, the known devices, the cache of kernels."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hlo_parser import HloParseError
from jax_stitch import arguments, devices, library, platform, store
from jax_stitch.autotune_choice import UnknownAutotuneError, autotune_for
from jax_stitch.capture.errors import CaptureError, UnstitchableError
from jax_stitch.compile import NvrtcMissing
from jax_stitch.hlo_command import add_subject, subject
from jax_stitch.hlo_files import HloFileError
from jax_stitch.planner_names import PlannerName, UnknownPlannerError, planner_name
from jax_stitch.progress import shown_steps, told
from jax_stitch.stages import STAGES, UnknownStageError, stages_named
from jax_stitch.template_error import TemplateError
from jax_stitch.text import format_bytes, text_table

OK, FAILED, WRONG_USE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns its exit status: 0, 1 if it failed (or results disagree), 2 if it was asked for wrongly.
    """
    options = _parser().parse_args(argv)
    platform.settle()
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except (
        arguments.UsageError,
        devices.UnknownDeviceError,
        UnknownPlannerError,
        UnknownAutotuneError,
        TemplateError,
        HloFileError,
        UnknownStageError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    except (CaptureError, NvrtcMissing, UnstitchableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jax_stitch", description="Larger fusions for JAX.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    plan = commands.add_parser("plan", help="show how a function is stitched on a device, which need not be there")
    add_subject(plan)
    plan.add_argument("--device", metavar="NAME", help="one of `devices`; default: the one that JAX uses")
    plan.add_argument(
        "--planner",
        metavar="NAME",
        help=f"one of {', '.join(PlannerName)}; default: the function's own, or beam",
    )
    plan.add_argument(
        "--templates",
        metavar="TEXT",
        help="schedules that parts are to have, as plans print them: 'name[GRID,WARP_32]; ...'",
    )
    _add_autotune(plan)
    plan.add_argument("--html", metavar="FILE", type=Path, help="also write the plan as a page")
    plan.add_argument("--source", action="store_true", help="also print the source of every kernel")
    plan.set_defaults(command=_plan)

    tracing = _add_trace(commands)
    comparison = commands.add_parser("compare", help="run a function under jax.jit and stitch_jit, side by side")
    add_subject(comparison)
    comparison.add_argument("--devices", nargs="+", default=[], metavar="NAME", help="also plan for these")
    _add_autotune(comparison)
    comparison.add_argument("--seconds", type=float, default=3.0, help="time to spend on timing (default: %(default)s)")
    comparison.set_defaults(command=_compare)

    listing = commands.add_parser("devices", help="list the devices that plans can be made for")
    listing.set_defaults(command=_devices)

    measuring = commands.add_parser(
        "measure", help="measure what kernels' times are predicted from on an attached device, and keep it"
    )
    measuring.add_argument(
        "--device", metavar="NAME", help="one of `devices` that is attached; default: the one in use"
    )
    measuring.set_defaults(command=_measure)

    reducing = commands.add_parser("minimise", help="make the program of a JAX_STITCH_DEBUG=1 report small")
    reducing.add_argument("folder", metavar="FOLDER", type=Path, help="the report: minimised/ in it is what comes out")
    reducing.add_argument("--timeout", type=float, default=120.0, help="seconds for an attempt (default: %(default)s)")
    reducing.add_argument("--seconds", type=float, default=1800.0, help="for all of them (default: %(default)s)")
    reducing.set_defaults(command=_minimise)

    cache = commands.add_parser("cache", help="show what is kept on disk between processes, or delete it")
    cache.add_argument("action", nargs="?", choices=("info", "clear"), default="info", help="default: %(default)s")
    cache.set_defaults(command=_cache)

    for command in (plan, tracing, comparison, listing, measuring, reducing, cache):
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_trace(commands: Any) -> argparse.ArgumentParser:
    tracing = commands.add_parser("trace", help="print what each stage makes of a function, from HLO to kernels' text")
    add_subject(tracing)
    tracing.add_argument("--device", metavar="NAME", help="one of `devices`; default: the one that JAX uses")
    tracing.add_argument(
        "--stage", metavar="NAME", nargs="+", default=["all"], help=f"of {', '.join(STAGES)}; default: all of them"
    )
    tracing.set_defaults(command=_trace)
    return tracing


def _add_autotune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--autotune",
        nargs="?",
        const=True,
        metavar="top3",
        help="measure candidates and XLA's own kernels on this machine's device: all of them, or with top3 three each",
    )


def _plan(options: argparse.Namespace) -> int:
    devices.get(options.device)  # wrong names are told at once, not after minutes
    found = subject(options)
    planner = None if options.planner is None else planner_name(options.planner)
    choice = None if options.autotune is None else autotune_for(options.autotune)
    with shown_steps() as step:
        step(f"planning {found.name}")
        asked = {"planner": planner, "templates": options.templates, "autotune": choice, "strict": options.strict}
        with told(step):
            plan = found.plan(options.device, **asked)
        step("compiling both programs to count launches and bytes")
        text = plan.to_json() if options.json else str(plan)
    print(text)
    if options.source:
        for kernel in plan.kernels:
            print(f"\n// {kernel.name}\n{kernel.source}")
    if options.html is not None:
        print(f"wrote {plan.to_html(options.html)}", file=sys.stderr)
    return OK


def _trace(options: argparse.Namespace) -> int:
    chosen = stages_named((name for text in options.stage for name in text.split(",")), "--stage")
    devices.get(options.device)
    found = subject(options)
    with shown_steps() as step:
        step(f"planning {found.name}")
        with told(step):
            plan = found.plan(options.device, strict=options.strict)
    texts = {stage: plan.stages[stage]() for stage in chosen if stage in plan.stages}
    if options.json:
        print(json.dumps(texts, indent=2))
    elif len(chosen) == 1:  # By itself, as a file that another tool reads.
        print(*texts.values(), end="")
    else:
        print("\n".join(f"==== {stage} of {plan.function} on {plan.device.name}\n{texts[stage]}" for stage in texts))
    if plan.unstitched is not None:
        print(f"note: not stitched: {plan.unstitched}", file=sys.stderr)
    return OK


def _compare(options: argparse.Namespace) -> int:
    choice = None if options.autotune is None else autotune_for(options.autotune)
    for name in options.devices:
        devices.get(name)
    found = subject(options)
    with shown_steps() as step:
        asked = {"seconds": options.seconds, "autotune": choice, "strict": options.strict}
        comparison = found.compare(devices=options.devices, step=step, **asked)
    print(comparison.to_json() if options.json else comparison)
    return OK if comparison.agrees else FAILED


def _devices(options: argparse.Namespace) -> int:
    found = [devices.get(name) for name in devices.names()]
    if options.json:
        rows = [{k: v for k, v in asdict(d).items() if k != "target_config"} | {"sm": d.sm} for d in found]
        print(json.dumps(rows, indent=2))
        return OK
    header = ("name", "", "arch", "SMs or cores", "shared / block", "L2", "memory", "bandwidth", "")
    table = [
        (
            d.name,
            d.description,
            d.sm or "",
            str(d.multiprocessors),
            format_bytes(d.shared_per_block_optin),
            format_bytes(d.l2_bytes),
            format_bytes(d.memory_bytes),
            f"{format_bytes(d.memory_bandwidth)}/s",
            "attached" if d.attached else "",
        )
        for d in found
    ]
    print(text_table(header, table, right=(3, 4, 5, 6, 7)))
    return OK


def _measure(options: argparse.Namespace) -> int:
    from jax_stitch.latency import constants as known
    from jax_stitch.latency.measure import NotAttachedError, measure

    device = devices.get(options.device)
    with shown_steps() as step:
        try:
            found = measure(device, step)
        except NotAttachedError as error:
            raise arguments.UsageError(str(error)) from None
    known.keep(device, found)
    if options.json:
        print(known.to_json(found).decode())
        return OK
    print(f"{device}\n{found}\nkept in {store.folder()}")
    return OK


def _minimise(options: argparse.Namespace) -> int:
    from jax_stitch.debug import NotFailing, minimise

    with shown_steps() as step:
        try:
            found = minimise(options.folder, options.timeout, options.seconds, step)
        except (NotFailing, OSError, HloParseError) as error:
            print(f"error: {error}", file=sys.stderr)
            return FAILED
    print(json.dumps({"folder": str(found)}) if options.json else found)
    return OK


def _cache(options: argparse.Namespace) -> int:
    cleared = options.action == "clear"
    measured = library.summary()
    found = store.clear() if cleared else store.contents()
    if options.json:
        times = {"times": measured.times, "stations": measured.stations}
        told = {"cleared": cleared, **asdict(found), "folder": str(found.folder), "measured": times}
        print(json.dumps(told, indent=2))
        return OK
    rows = [(k.kind, f"{k.files:,}", format_bytes(k.bytes), str(k.damaged or "")) for k in found.kinds]
    print(f"{'deleted from' if cleared else 'cache folder'} {found.folder}, limit {format_bytes(found.limit)}")
    print(text_table(("", "files", "size", "damaged"), rows, right=(1, 2, 3)))
    on = "1 device" if measured.stations == 1 else f"{measured.stations} devices"
    print(f"measured times: {measured.times:,}, on {on} (anew for each driver, compiler and version of JAX)")
    return OK


if __name__ == "__main__":
    sys.exit(main())
