"""``python -m jax_stitch``: plans and comparisons of a function, the known devices, the cache of kernels."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jaxlib
import msgspec

from hlo_parser import HloParseError
from jax_stitch import devices
from jax_stitch.inspect.cli.command_errors import FAILED, WRONG_USE, explained
from jax_stitch.inspect.cli.command_parser import PROGRAM, Parser, new_file, one_of, seconds
from jax_stitch.inspect.cli.hlo_command import add_subject, subject
from jax_stitch.jit import library
from jax_stitch.jit.stages import PASSES, STAGES, stages_named
from jax_stitch.util import platform, store
from jax_stitch.util.formatting import format_bytes, text_table
from jax_stitch.util.options.autotune import autotune_for
from jax_stitch.util.options.planner_names import PlannerName, planner_name
from jax_stitch.util.progress import shown_steps, told
from jax_stitch.util.suggestion import UsageError
from jax_stitch.version import __version__

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan
    from jax_stitch.inspect.report.plan_diff import PlanDiff

OK, INTERRUPTED = 0, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns its exit status: 0, 1 if it failed (or results disagree), 2 if it was asked for wrongly or something that it
    needs is not installed. Says what went wrong in at most three lines; ``--traceback`` shows the traceback besides.
    """
    try:
        options = _parser().read(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        platform.settle()
        if options.uses_jax:
            platform.start()
        return command(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # Whoever reads has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # Whatever it is, nobody is to see a traceback who has not asked for it.
        if options.traceback:
            traceback.print_exception(error)
        (first, *more), status = explained(error)
        print("\n".join([f"error: {first}", *more]), file=sys.stderr)
        return status


def _parser() -> Parser:
    parser = Parser(prog=PROGRAM, description="Larger fusions for JAX: plans, comparisons, devices, the cache.")
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str, uses_jax: bool = True) -> Parser:
        made: Parser = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command, uses_jax=uses_jax)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.add_argument("--traceback", action="store_true", help="where something fails, show Python's traceback too")
        parser.commands[name] = made
        return made

    _plan_options(add("plan", _plan, "show how a function is stitched on a device, which need not be there"))
    tracing = add("trace", _trace, "print what each stage makes of a function, from HLO to kernels' text")
    add_subject(tracing)
    tracing.add_argument("--device", metavar="NAME", help="one of `devices`; default: the one that JAX uses")
    tracing.add_argument(
        "--stage", metavar="NAME", nargs="+", default=["all"], help=f"of {', '.join(STAGES)}; default: all of them"
    )
    tracing.add_argument("--passes", action="store_true", help="print what each pass over the graph changed instead")
    comparison = add("compare", _compare, "run a function under jax.jit and stitch_jit, side by side")
    add_subject(comparison)
    comparison.add_argument("--devices", nargs="+", default=[], metavar="NAME", help="also plan for these")
    _add_autotune(comparison)
    comparison.add_argument(
        "--seconds", type=seconds, default=3.0, metavar="S", help="time to spend on timing (default: %(default)s)"
    )
    _diff_options(add("diff", _diff, "show what another device or planner does otherwise with a function"))
    add("devices", _devices, "list the devices that plans can be made for")
    measuring = add("measure", _measure, "measure what kernels' times are predicted from on an attached device")
    measuring.add_argument(
        "--device", metavar="NAME", help="one of `devices` that is attached; default: the one in use"
    )
    reducing = add("minimise", _minimise, "make the program of a JAX_STITCH_DEBUG=1 report small", uses_jax=False)
    reducing.add_argument("folder", metavar="FOLDER", type=Path, help="the report: minimised/ in it is what comes out")
    reducing.add_argument(
        "--timeout", type=seconds, default=120.0, metavar="S", help="for an attempt (default: %(default)s)"
    )
    reducing.add_argument(
        "--seconds", type=seconds, default=1800.0, metavar="S", help="for all of them (default: %(default)s)"
    )
    cache = add("cache", _cache, "show what is kept on disk between processes, or delete it", uses_jax=False)
    cache.add_argument(
        "action", nargs="?", type=one_of("info", "clear"), default="info", metavar="info|clear", help="default: info"
    )
    add("doctor", _doctor, "say what works on this machine, what does not, and what to do", uses_jax=False)
    return parser


def _plan_options(plan: Parser) -> None:
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
    _add_page(plan)
    plan.add_argument("--source", action="store_true", help="also print the source of every kernel")


def _diff_options(difference: Parser) -> None:
    add_subject(difference)
    difference.add_argument(
        "--devices", nargs="+", default=[], metavar="NAME", help="one or two; default: the one used"
    )
    difference.add_argument("--planners", nargs="+", default=[], metavar="NAME", help="one or two; default: beam")
    _add_page(difference)


def _add_page(parser: Parser) -> None:
    parser.add_argument("--html", metavar="FILE", type=new_file, help="also write it as a page")
    parser.add_argument("--open", action="store_true", help="show that page in a browser")


def _versions() -> str:
    return f"jax_stitch {__version__} (jax {jax.__version__}, jaxlib {jaxlib.__version__})"


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
    program = subject(options)
    planner = None if options.planner is None else planner_name(options.planner)
    choice = None if options.autotune is None else autotune_for(options.autotune)
    with shown_steps() as step:
        step(f"planning {program.name}")
        asked = {"planner": planner, "templates": options.templates, "autotune": choice, "strict": options.strict}
        with told(step):
            plan = program.plan(options.device, **asked)
        step("compiling both programs to count launches and bytes")
        text = plan.to_json() if options.json else str(plan)
    print(text)
    if options.source:
        for kernel in plan.kernels:
            print(f"\n// {kernel.name}\n{kernel.source}")
    _show_page(options, plan)
    return OK


def _show_page(options: argparse.Namespace, shown: Plan | PlanDiff) -> None:
    """Write the page where one was asked for, and opens it."""
    if options.html is None and not options.open:
        return
    path = options.html or Path(tempfile.mkdtemp(prefix="jax-stitch-")) / "plan.html"
    print(f"wrote {shown.to_html(path)}", file=sys.stderr)
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser was found: open {path} in one", file=sys.stderr)


def _diff(options: argparse.Namespace) -> int:
    names: list[str | None] = options.devices or [None]
    planners: list[PlannerName | None] = [planner_name(name) for name in options.planners] or [None]
    for name in names:
        devices.get(name)
    if max(len(names), len(planners)) != 2 or 3 in (len(names), len(planners)):
        raise UsageError("name two to compare: --devices a100 h200, or --planners beam ilp, or two of both")
    program = subject(options)
    plans = []
    with shown_steps() as step:
        for name, planner in ((names[0], planners[0]), (names[-1], planners[-1])):
            step(f"planning {program.name} for {name or 'the device in use'}{f', {planner}' if planner else ''}")
            with told(step):
                plans.append(program.plan(name, planner=planner, strict=options.strict))
        step("compiling the programs to count launches and bytes")
        difference = plans[0].diff(plans[1])
        text = json.dumps(difference.to_dict(), indent=2) if options.json else str(difference)
    print(text)
    _show_page(options, difference)
    return OK


def _trace(options: argparse.Namespace) -> int:
    chosen = stages_named((name for text in options.stage for name in text.split(",")), "--stage")
    devices.get(options.device)
    program = subject(options)
    with shown_steps() as step:
        step(f"planning {program.name}")
        with told(step):
            plan = program.plan(options.device, strict=options.strict)
    chosen = (PASSES,) if options.passes else chosen
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
    program = subject(options)
    with shown_steps() as step:
        asked = {"seconds": options.seconds, "autotune": choice, "strict": options.strict}
        comparison = program.compare(devices=options.devices, step=step, **asked)
    print(comparison.to_json() if options.json else comparison)
    return OK if comparison.agrees else FAILED


def _devices(options: argparse.Namespace) -> int:
    described = [devices.get(name) for name in devices.names()]
    if options.json:
        rows = [{k: v for k, v in asdict(d).items() if k != "target_config"} | {"sm": d.sm} for d in described]
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
        for d in described
    ]
    print(text_table(header, table, right=(3, 4, 5, 6, 7)))
    return OK


def _measure(options: argparse.Namespace) -> int:
    from jax_stitch.latency import constants as known
    from jax_stitch.latency.measure import NotAttachedError, measure

    device = devices.get(options.device)
    with shown_steps() as step:
        try:
            constants = measure(device, step)
        except NotAttachedError as error:
            raise UsageError(str(error)) from None
    known.keep(device, constants)
    if options.json:
        print(known.to_json(constants).decode())
        return OK
    print(f"{device}\n{constants}\nkept in {store.folder()}")
    return OK


def _minimise(options: argparse.Namespace) -> int:
    from jax_stitch.jit.debug.minimise import NotFailing, minimise

    if not options.folder.is_dir():
        raise UsageError(f"there is no folder {options.folder}: name one that JAX_STITCH_DEBUG=1 had written")
    with shown_steps() as step:
        try:
            folder = minimise(options.folder, options.timeout, options.seconds, step)
        except (NotFailing, OSError, HloParseError) as error:
            print(f"error: {error}", file=sys.stderr)
            return FAILED
    print(json.dumps({"folder": str(folder)}) if options.json else folder)
    return OK


def _cache(options: argparse.Namespace) -> int:
    cleared = options.action == "clear"
    measured = library.summary()
    contents = store.clear() if cleared else store.contents()
    if options.json:
        times = {"times": measured.times, "stations": measured.stations}
        told = {"cleared": cleared, **asdict(contents), "folder": str(contents.folder), "measured": times}
        print(json.dumps(told, indent=2))
        return OK
    rows = [(k.kind, f"{k.files:,}", format_bytes(k.bytes), str(k.damaged or "")) for k in contents.kinds]
    print(f"{'deleted from' if cleared else 'cache folder'} {contents.folder}, limit {format_bytes(contents.limit)}")
    print(text_table(("", "files", "size", "damaged"), rows, right=(1, 2, 3)))
    on = "1 device" if measured.stations == 1 else f"{measured.stations} devices"
    print(f"measured times: {measured.times:,}, on {on} (separately for each driver, compiler and version of JAX)")
    return OK


def _doctor(options: argparse.Namespace) -> int:
    from jax_stitch.inspect.doctor import examine

    found = examine()
    if options.json:
        told = {"kernels_can_run": found.kernels_can_run, "sections": msgspec.to_builtins(found.sections)}
        print(json.dumps(told, indent=2))
    else:
        print(found)
    return OK if found.kernels_can_run else FAILED


if __name__ == "__main__":
    sys.exit(main())
