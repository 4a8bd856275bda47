"""The stages that can be looked at, by name."""

from __future__ import annotations

from collections.abc import Iterable

from jax_stitch.util.user_errors import UserError

STAGES = ("hlo", "graph", "plan", "schedule", "kernel", "source")
"""In the order of processing: XLA's optimized HLO; the same as one flat graph; which operations are in which kernel;
how each kernel is laid over threads and memory; what it does, in the kernel language; its C++ text.
"""

PASSES = "passes"
"""The name of what the passes between HLO and plan changed, which is no stage."""

AFTER = "graph:after="
"""Before a pass's name in ``JAX_STITCH_DUMP``."""


class UnknownStageError(UserError, ValueError):
    """There is no stage of that name."""


def stages_named(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return these stages in the order of processing; "all" is all of them. Raise ``UnknownStageError``, which says
    ``where`` the wrong name stands.
    """
    wanted = {name.strip().lower() for name in names} - {""}
    if unknown := sorted(wanted - {*STAGES, "all"}):
        raise UnknownStageError(
            f"{where}: there is no stage {unknown[0]!r}; the stages are {', '.join(STAGES)}, and all for all of them"
        )
    return STAGES if "all" in wanted else tuple(s for s in STAGES if s in wanted)
