"""The table of known faults. Each row was reproduced with plain ``jax.jit`` unless its remedy says otherwise.

A row goes out when the oldest supported version no longer has its fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from types import MappingProxyType

from jax_stitch.jit.known_faults.model import Effect, Fault, Version

_YNN = MappingProxyType({"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"})
"""YNNPACK for single products alone: it is its fusions with reductions that are wrong."""
_YNN_FLAGS = "--xla_cpu_experimental_ynn_fusion_type=-reduce"
_IN_PLACE = MappingProxyType({"xla_disable_hlo_passes": "algsimp"})
"""Without the pass that moves a reshape in front of the update, XLA sees that it must not write in place."""

_SUMMED = frozenset({"dot_general", "reduce_sum"})

_COMPILED_ANEW = "a function under stitch_jit is compiled with an option that mends it; inside another jax.jit set"

FAULTS = (
    Fault(
        name="fused_product",
        title="a product of small matrices that is fused with a reduction is wrong in its last rows",
        effect=Effect.WRONG,
        issues=("jax#39103",),
        platform="cpu",
        remedy=_COMPILED_ANEW,
        since=(0, 10, 2),
        before=(0, 11),
        options=_YNN,
        operations=_SUMMED,
        flags=_YNN_FLAGS,
    ),
    Fault(
        name="high_rank_sum",
        title="sums of products of 7 or 8 dimensions end the process, hang or are wrong",
        effect=Effect.CRASH,
        issues=("jax#39257", "jax#40412"),
        platform="cpu",
        remedy=_COMPILED_ANEW,
        since=(0, 10, 2),
        before=(0, 11, 1),
        options=_YNN,
        operations=_SUMMED,
        flags=_YNN_FLAGS,
    ),
    Fault(
        name="shifted_update",
        title="an update in place reads what it has overwritten: x.at[1:].set(x[:-1]) that is reshaped",
        effect=Effect.WRONG,
        issues=("openxla/xla#49176",),
        platform="cpu",
        remedy=_COMPILED_ANEW,
        options=_IN_PLACE,
        operations=frozenset({"dynamic_update_slice", "scatter"}),
        flags="--xla_disable_hlo_passes=algsimp",
    ),
    Fault(
        name="update_in_loop",
        title="a step of a loop that updates less than 480 bytes takes as long as writing the whole array",
        effect=Effect.SLOW,
        issues=("jax#40101",),
        platform="cpu",
        remedy="stacked results of scans are stitched into one kernel; other loops stay slow: change the version",
        since=(0, 11, 1),
        before=(0, 11, 2),
    ),
    Fault(
        name="lost_nan",
        title="max and min along an axis lose NaN",
        effect=Effect.WRONG,
        issues=(),
        platform="cpu",
        remedy="stitched kernels keep NaN; what is left to XLA loses it, unless you set",
        since=(0, 10, 2),
        flags=_YNN_FLAGS,
    ),
    Fault(
        name="softmax_of_large",
        title="softmax(x * 1e10) has NaN: XLA computes x * 1e10 twice, rounded differently",
        effect=Effect.WRONG,
        issues=(),
        platform="cpu",
        remedy="stitched kernels are right; what is left to XLA is not: scale less, or subtract the maximum first",
    ),
    Fault(
        name="atan2_of_subnormals",
        title="arctan2 of two subnormal numbers is NaN",
        effect=Effect.WRONG,
        issues=(),
        platform="cpu",
        remedy="stitched kernels are right; what is left to XLA is not: scale the arguments first",
    ),
    Fault(
        name="subnormal_bfloat16",
        title="bfloat16 numbers below 1.2e-38 count as zero: in comparisons, max and min, argmax, counts, sorts",
        effect=Effect.WRONG,
        issues=(),
        platform="cpu",
        remedy="stitched kernels are right; what is left to XLA is not: scale the arguments first",
    ),
    Fault(
        name="narrow_place",
        title="an update of a vector at an 8-bit integer, where it has more elements than that counts, hits others",
        effect=Effect.WRONG,
        issues=(),
        platform="cpu",
        remedy="stitched kernels are right; what is left to XLA is not: give places as int32",
        before=(0, 11),
    ),
    Fault(
        name="scatter_add",
        title="additions at places, x.at[i].add(y), in float32 take 450 to 5,000 times as long",
        effect=Effect.SLOW,
        issues=("jax#38806",),
        platform="gpu",
        remedy="known from the report alone, not measured here: change the version",
        since=(0, 10, 2),
        before=(0, 11, 1),
    ),
)
"""All rows."""


def applying(version: str, platforms: Collection[str]) -> tuple[Fault, ...]:
    """Return the faults that a version of jaxlib has on any of these platforms of JAX."""
    numbers = version_numbers(version)
    return tuple(fault for fault in FAULTS if fault.platform in platforms and fault.is_of(numbers))


def version_numbers(version: str) -> Version:
    """Return the numbers at the front of a version: (0, 11, 1) of "0.11.1.dev2"."""
    front = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in front[0].split(".")) if front else ()
