"""Whether ``verify=True`` refuses the kernels that a planted fault makes wrong, in the program that found the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from jax_stitch import UnstitchableError, devices, stitch, stitch_jit
from jax_stitch.jit.verify.kernels import verified
from jax_stitch.util.options.verification import Verify, WrongKernel
from tests.fusion import forced
from tests.fuzz import judge, quickly
from tests.fuzz.program import Program
from tests.fuzz.ways import Seen, Way, device_of, small_h200, watched

REFUSED, UNCHANGED, MISSED, OTHER = "refused", "result unchanged", "missed", "fails before"


def opinion(program: Program, way: Way) -> tuple[str, str]:
    """What comes of a program, run in a way with verification, and what is said: one of the four words above."""
    fun, args = program.function(), program.arguments()
    want = judge.arrays(jax.jit(fun)(*args))
    try:
        with watched(Seen()), quickly.kernels_together():
            got = run(fun, args, way)
    except WrongKernel as failure:
        return REFUSED, str(failure)
    except UnstitchableError as failure:
        return UNCHANGED, str(failure)
    except Exception as failure:
        return OTHER, f"{type(failure).__name__}: {failure}"
    wrong = judge.judge(fun, args, got, want)
    return (MISSED, wrong[0].message) if wrong else (UNCHANGED, "")


def run(fun: Callable[..., Any], args: Sequence[np.ndarray], way: Way) -> list[np.ndarray]:
    """The results, stitched this way and verified. Raises ``WrongKernel`` where a kernel is refused."""
    given = [jax.device_put(np.array(a)) for a in args]
    with ExitStack() as stack:
        if way.name in ("forced", "verified", "h200-forced"):
            stack.enter_context(forced.everything_pays(way.seed))
        if way.name == "h200-forced":
            stack.enter_context(small_h200(way.seed))
        match way.name:
            case "default" | "forced" | "verified":
                return judge.arrays(stitch_jit(fun, verify=True, strict=True)(*given))
            case "h200" | "h200-forced":
                laid_out = stitch(fun, schedule_device="h200", verify=True, strict=True)
                return judge.arrays(jax.jit(laid_out)(*given))
    made = forced.stitched(forced.hlo_of(fun, *args), device_of(way.device), way.seed)
    sound = verified(made, devices.get("cpu"), Verify.RAISE)
    return [np.asarray(r) for r in jax.jit(sound.compile("host"))(given)]
