"""A function under ``jax.jit`` and under ``stitch_jit``, side by side: time, launches, bytes, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jax_stitch.api import stitch_jit
from jax_stitch.backend.compile import CompilerMissing, toolchain
from jax_stitch.inspect.report.accuracy import LeafAgreement, NoReference, agreement, reference
from jax_stitch.inspect.report.plan import Plan
from jax_stitch.jit.tiers.stitched_function import AutotuneChoice
from jax_stitch.util.formatting import format_bytes, format_faster, format_seconds, text_table
from jax_stitch.util.options.jit_arguments import check_names
from jax_stitch.util.progress import Step, silent, told
from jax_stitch.util.timing import Timing, copied, time_programs
from jax_stitch.util.user_errors import api_boundary


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What ``compare`` found. It prints as a table."""

    function: str
    device: str
    """The device that the functions ran on."""
    plain: Timing
    stitched: Timing
    leaves: tuple[LeafAgreement, ...]
    """One for each output leaf, against float64; or against ``jax.jit``'s own result where ``exact`` is False."""
    exact: bool
    """Whether there was a float64 reference; a function that casts to a fixed precision has none."""
    plans: tuple[Plan, ...] = field(repr=False)
    """On the device in use, then on the others that were asked for."""

    @property
    def speedup(self) -> float:
        """Time of ``jax.jit`` over time of ``stitch_jit``: above 1 is faster."""
        return self.plain.median / self.stitched.median

    @property
    def error(self) -> float:
        """Return the largest error of a stitched leaf, relative to the reference's largest magnitude in that leaf."""
        return max((leaf.stitched.largest for leaf in self.leaves), default=0.0)

    @property
    def plain_error(self) -> float:
        """Return the same of ``jax.jit``."""
        return max((leaf.plain.largest for leaf in self.leaves), default=0.0)

    @property
    def agrees(self) -> bool:
        """Return whether every leaf keeps to the criterion of ``jax_stitch.inspect.report.accuracy``."""
        return all(leaf.agrees for leaf in self.leaves)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return (what, jax.jit, stitched, gain) as text."""
        spread = max(self.plain.spread, self.stitched.spread)
        rows = [
            (
                f"time on {self.device} (spread {spread:.0%})",
                format_seconds(self.plain.median),
                format_seconds(self.stitched.median),
                format_faster(self.stitched.median, self.plain.median),
            )
        ]
        for i, plan in enumerate(self.plans):
            where = plan.device.name if i == 0 else f"{plan.device.name} (planned)"
            rows.append((f"launches on {where}", *plan.figures()[0][1:]))
            rows.append((f"bytes on {where}", *plan.figures()[1][1:]))
        against = "float64" if self.exact else "jax.jit"
        known = [leaf for leaf in self.leaves if not leaf.is_noise]
        plain, stitched = (
            max((errors.largest for errors in leaves), default=0.0)
            for leaves in ([leaf.plain for leaf in known], [leaf.stitched for leaf in known])
        )
        rows.append((f"largest error against {against}", f"{plain:.2g}", f"{stitched:.2g}", ""))
        return rows

    def noise(self) -> str:
        """Return which results have no digit that is right, under ``jax.jit`` neither: their errors say nothing. Or
        empty.
        """
        count = sum(leaf.is_noise for leaf in self.leaves)
        if not count:
            return ""
        which = f"{count} of {len(self.leaves)} results {'is' if count == 1 else 'are'}"
        return f"{which} rounding noise under jax.jit too, as if of a number that is 0: not in the largest error"

    def __str__(self) -> str:
        table = text_table((self.function, "jax.jit", "stitched", "gain"), self.rows(), right=(1, 2, 3))
        bounds = ", ".join(f"{format_bytes(p.bound_bytes)} on {p.device.name}" for p in self.plans)
        lines = [table, f"least possible bytes: {bounds}"]
        lines += [line for line in (self.noise(),) if line]
        lines += [str(leaf) for leaf in self.leaves if not leaf.agrees]
        return "\n".join(lines)

    def __repr__(self) -> str:
        agreed = "results agree" if self.agrees else "results DISAGREE"
        return f"<Comparison of {self.function} on {self.device}: {self.speedup:.2f} times as fast, {agreed}>"

    def _repr_html_(self) -> str:
        from jax_stitch.inspect.page.summary import comparison_summary

        return comparison_summary(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "function": self.function,
            "device": self.device,
            "seconds": {"jax.jit": self.plain.median, "stitched": self.stitched.median},
            "spread": {"jax.jit": self.plain.spread, "stitched": self.stitched.spread},
            "speedup": self.speedup,
            "error": {"jax.jit": self.plain_error, "stitched": self.error, "against_float64": self.exact},
            "agrees": self.agrees,
            "plans": [
                {
                    "device": p.device.name,
                    "launches": {"jax.jit": p.xla_launches, "stitched": p.launches},
                    "bytes": {"jax.jit": p.xla_bytes, "stitched": p.bytes, "bound": p.bound_bytes},
                }
                for p in self.plans
            ],
        }

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


@api_boundary
def compare(
    f: Callable[..., Any],
    *args: Any,
    devices: Sequence[str] = (),
    rounds: int = 15,
    seconds: float = 3.0,
    step: Step = silent,
    autotune: AutotuneChoice | None = None,
    strict: bool | None = None,
    **kwargs: Any,
) -> Comparison:
    """Run ``f(*args, **kwargs)`` under ``jax.jit`` and ``stitch_jit`` on the device in use, and plans it for others.

    ``f`` is a plain function or one under ``stitch_jit``, whose options are kept, less ``mode``. Where it donates
    arguments, copies of them are donated, and the copies that XLA makes because of it count. ``autotune`` and
    ``strict`` are other values for these options. ``devices`` are names of devices to plan for besides the one in use;
    none of them needs to be there. ``rounds`` and ``seconds`` bound the timing (see ``jax_stitch.util.timing``);
    ``step`` is told what is being done.
    """
    fun, options, stitching = _unwrapped(f)
    check_names(fun, kwargs, ("devices", "rounds", "seconds", "step", "autotune", "strict"), "compare")
    if autotune is not None:
        stitching["autotune"] = autotune
    if strict is not None:
        stitching["strict"] = strict
    if jax.default_backend() == "cpu":
        try:
            toolchain.compiler()  # Kernels need it, and their launches cannot be counted without: told at once.
        except CompilerMissing as error:
            raise error.with_traceback(None) from None
    plain, stitched = jax.jit(fun, **options), stitch_jit(fun, mode="now", **stitching, **options)
    kept = {k: v for k, v in options.items() if not k.startswith("donate_")}
    donating = len(kept) < len(options)
    step("compiling with jax.jit")
    expected = jax.block_until_ready(_called(plain, args, kwargs, donating))
    step("stitching and compiling")
    with told(step):
        results = jax.block_until_ready(_called(stitched, args, kwargs, donating))
    step("computing the float64 reference")
    try:
        exact, precise = reference(fun, args, kwargs, kept), True
    except NoReference:
        exact, precise = expected, False
    leaves = agreement(results, expected, exact)
    step("timing")
    functions: dict[str, Callable[..., Any]] = {"plain": plain, "stitched": stitched}
    timings = time_programs(functions, args, kwargs, rounds=rounds, seconds=seconds, donating=donating)
    plans = []
    for device in (None, *devices):
        step(f"planning for {device or 'the device in use'}")
        plan = stitched.plan(*args, device=device, **kwargs)
        _ = plan.launches, plan.xla_launches  # counted here, where `step` can say so, and not when first printed
        plans.append(plan)
    name = getattr(fun, "__name__", "function")
    return Comparison(name, plans[0].device.name, timings["plain"], timings["stitched"], leaves, precise, tuple(plans))


def _unwrapped(f: Any) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """Return the function that ``stitch_jit`` was given, the ``jax.jit`` options with it, and its own."""
    if not hasattr(f, "plan"):
        return f, {}, {}
    return f.__wrapped__, dict(f.jit_options), dict(f.stitch_options)


def _called(function: Callable[..., Any], args: Any, kwargs: Any, donating: bool) -> Any:
    """Return the results of a call; what it donates are copies."""
    args, kwargs = copied((args, kwargs)) if donating else (args, kwargs)
    return function(*args, **kwargs)
