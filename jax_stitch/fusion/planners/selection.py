"""Plans as selections of patterns: beam search (2021 paper, section 5.3), and the best pattern first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from jax_stitch.fusion.planners.space import Scored, is_acyclic


class Selection(Struct, frozen=True):
    """Disjoint patterns that can run one after the other."""

    patterns: tuple[Scored, ...] = ()
    nodes: int = 0
    seconds: float = 0.0

    def with_pattern(self, pattern: Scored) -> Selection | None:
        """Return the selection and one more, if they do not overlap or wait for each other."""
        if self.nodes & pattern.nodes:
            return None
        patterns = (*self.patterns, pattern)
        waits = pattern.after & self.nodes and pattern.before & self.nodes
        if waits and not is_acyclic(patterns):
            return None
        return Selection(patterns, self.nodes | pattern.nodes, self.seconds + pattern.seconds)


def search_beam(patterns: Sequence[Scored], width: int) -> tuple[Selection, ...]:
    """Go through patterns by their first node, from producers to consumers, and try to append each to each plan."""
    beam = [Selection()]
    starts = sorted(patterns, key=lambda p: (p.nodes & -p.nodes, -p.seconds))
    for pattern in starts:
        grown = [with_it for plan in beam if (with_it := plan.with_pattern(pattern)) is not None]
        beam = sorted([*beam, *grown], key=lambda s: -s.seconds)[:width]
    return tuple(beam)


def greedy(patterns: Sequence[Scored]) -> Selection:
    """Return the best pattern first, then the best beside it, and so on."""
    plan = Selection()
    for pattern in patterns:
        plan = plan.with_pattern(pattern) or plan
    return plan
