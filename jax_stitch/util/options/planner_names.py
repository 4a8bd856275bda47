"""The planners that there are: ways to choose what is stitched."""

from __future__ import annotations

from enum import StrEnum

from jax_stitch.util.suggestion import suggestion
from jax_stitch.util.user_errors import UserError


class PlannerName(StrEnum):
    """The values of ``planner=``."""

    BEAM = "beam"
    """Approximate dynamic programming and beam search (2021 paper); the default, and the best."""
    ILP = "ilp"
    """A 0/1 program over a set of patterns (2019 paper)."""
    SPAN = "span"
    """Layers between library calls (2018 paper)."""
    NONE = "none"
    """XLA's own fusions."""


class UnknownPlannerError(UserError, ValueError):
    """A planner that there is not. The message lists those that there are."""


def planner_name(text: str) -> PlannerName:
    """Return the planner of that name; raises ``UnknownPlannerError``."""
    try:
        return PlannerName(text)
    except ValueError:
        known = ", ".join(repr(name.value) for name in PlannerName)
        meant = suggestion(str(text), PlannerName)
        raise UnknownPlannerError(f"planner is {text!r}, which is none of {known}{meant}") from None
