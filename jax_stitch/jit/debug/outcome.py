"""What becomes of a case: under XLA alone, and stitched."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

import hlo_parser
from hlo_parser import ELEMENT_TYPES, ArrayShape, TupleShape
from jax_stitch import devices
from jax_stitch.backend.compile import target_of
from jax_stitch.frontend.capture import Capture
from jax_stitch.jit.debug.case import Case
from jax_stitch.jit.debug.plain import run_plain
from jax_stitch.jit.programs.fallback import is_internal, place_of
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.util.options.planner_names import PlannerName

AGREES, DIFFERS, RAISES, UNSUPPORTED, INVALID = "agrees", "differs", "raises", "unsupported", "invalid"
DIED, HUNG = "dies", "hangs"

TOLERANCE = {8: 1e-9, 4: 1e-3, 2: 5e-2, 1: 0.5}
"""Differences that may be rounding, relative to the largest magnitude of a result, by the bytes of its type."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``kind`` is one of the words above; ``what`` tells failures of a kind apart."""

    kind: str
    what: str = ""
    details: str = ""

    @property
    def fails(self) -> bool:
        """Return whether it is a failure of JAX Stitch."""
        return self.kind in (DIFFERS, RAISES, DIED, HUNG)

    def is_like(self, other: Outcome) -> bool:
        """Return whether both are the same failure."""
        return (self.kind, self.what) == (other.kind, other.what)

    def __str__(self) -> str:
        return f"{self.kind}{f': {self.what}' if self.what else ''}\n{self.details}".strip()


def outcome(case: Case) -> Outcome:
    """Run a case in this process under both."""
    faults = hlo_parser.verify(case.module)
    if faults:
        return Outcome(INVALID, "the program is wrong", str(faults[0]))
    try:
        arguments = case.arguments()
        expected = run_plain(case.module, arguments)
    except Exception as error:  # Whatever XLA or JAX makes of a program is no failure of ours.
        return Outcome(INVALID, "XLA does not run it", "".join(traceback.format_exception_only(error)))
    try:
        results = run_stitched(case, arguments)
    except Exception as failure:
        shown = "".join(traceback.format_exception(failure))
        if not is_internal(failure):
            return Outcome(UNSUPPORTED, type(failure).__name__, str(failure))
        return Outcome(RAISES, f"{type(failure).__name__}{place_of(failure)}", shown)
    differing = [text for n, (f, e) in enumerate(zip(results, expected, strict=True)) if (text := difference(n, f, e))]
    return Outcome(DIFFERS, "", "\n".join(differing)) if differing else Outcome(AGREES)


def run_stitched(case: Case, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results by way of our kernels."""
    function = stitched(case).compile(target_of(devices.get(case.settings.device)))
    with jax.enable_x64(True):
        arrays = [jax.device_put(a) for a in arguments]
    return [np.asarray(r) for r in jax.jit(function)(arrays)]


def stitched(case: Case) -> Stitched:
    """Return the plan and the kernels of a case."""
    laid_out_for = devices.get(case.settings.laid_out_for)
    return stitch_capture(captured(case), laid_out_for, PlannerName(case.settings.planner), case.settings.templates)


def captured(case: Case) -> Capture:
    """Return a case as a capture of a function that nobody has any more."""
    module = case.module
    root = module.entry.root.shape
    results = root.elements if isinstance(root, TupleShape) else (root,)
    parameters = tuple(_type(p.shape) for p in module.entry.parameters)
    returned = tuple(map(_type, results))
    return Capture(
        name=module.name,
        device=devices.get(case.settings.device),
        constants=(),
        parameters=parameters,
        results=returned,
        in_tree=jax.tree.structure((parameters, {})),
        out_tree=jax.tree.structure(list(returned)),
        in_avals=parameters,
        out_avals=returned,
        unsupported=None,
        partitioning=None,
        effects=frozenset(),
        seconds=0.0,
        _program=None,
        _known_text=str(module),
    )


def _type(shape: hlo_parser.Shape) -> jax.ShapeDtypeStruct:
    assert isinstance(shape, ArrayShape), shape
    return jax.ShapeDtypeStruct(shape.dims, ELEMENT_TYPES[shape.dtype].numpy)


def difference(n: int, result: np.ndarray, expected: np.ndarray) -> str:
    """Return how a result differs, beyond rounding, from XLA's; empty if it does not."""
    if (result.shape, result.dtype) != (expected.shape, expected.dtype):
        return f"result {n} is {result.dtype}{list(result.shape)}, not {expected.dtype}{list(expected.shape)}"
    if result.dtype.kind in "biu":
        wrong = result != expected
    else:
        wide = np.complex128 if result.dtype.kind == "c" else np.float64
        size = result.dtype.itemsize // (2 if result.dtype.kind == "c" else 1)
        f, e = result.astype(wide), expected.astype(wide)
        finite = np.isfinite(f) & np.isfinite(e)
        largest = float(np.max(np.abs(e), initial=0.0, where=finite)) or 1.0
        with np.errstate(invalid="ignore"):
            close = np.abs(f - e) <= TOLERANCE[size] * largest
        wrong = ~np.where(finite, close, (f == e) | (np.isnan(f) & np.isnan(e)))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(np.count_nonzero(wrong))
    return f"result {n}: {count} of {wrong.size} elements differ; at {list(at)} {result[at]}, not {expected[at]}"
