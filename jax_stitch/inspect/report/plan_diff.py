"""Two plans of a program side by side: for two devices, by two planners, of two commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx

from jax_stitch.inspect.planned import NOWHERE, PlannedProgram
from jax_stitch.inspect.planned.final import stem
from jax_stitch.util.formatting import (
    count,
    format_bytes,
    format_faster,
    format_fewer,
    format_seconds,
    shorten,
    text_table,
)
from jax_stitch.util.user_errors import WrongArgument

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan


ALIKE = 0.9
"""Part of their operations that two kernels share which are called the same: XLA's passes differ a little by device."""


@dataclass(frozen=True, slots=True)
class Change:
    """Stitched kernels of two plans that share operations."""

    what: str
    """"the same", "another schedule", "split", "merged", "cut otherwise", or which plan alone has it."""
    left: tuple[int, ...]
    """Numbers of kernels of the first plan."""
    right: tuple[int, ...]


@dataclass(frozen=True)
class PlanDiff:
    """What ``plan.diff(other)`` returns. ``print`` shows it, ``to_html`` writes a page."""

    left: Plan
    right: Plan

    @cached_property
    def names(self) -> tuple[str, str]:
        """Return names for the two plans: by what they differ in."""
        for a, b in (
            (self.left.device.name, self.right.device.name),
            (self.left.planner, self.right.planner),
            (self.left.function, self.right.function),
        ):
            if a != b:
                return a, b
        return "first", "second"

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Return, for each operation of the second plan, the same one of the first, or ``NOWHERE``."""
        known: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, o in enumerate(self.left.program.operations):
            known[stem(o.name), o.op].append(i)
        places: list[int] = []
        for o in self.right.program.operations:
            here = known.get((stem(o.name), o.op))
            places.append(here.pop(0) if here else NOWHERE)
        return tuple(places)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Return the stitched kernels of both, gathered by the operations that they share; what differs most first."""
        graph = networkx.Graph()
        members = (_stitched(self.left), _stitched(self.right))
        graph.add_nodes_from((side, n) for side in (0, 1) for n in range(len(members[side])))
        owner = {i: n for n, own in enumerate(members[0]) for i in own}
        for n, own in enumerate(members[1]):
            for i in own:
                if (k := owner.get(self.places[i])) is not None:
                    graph.add_edge((0, k), (1, n))
        changes = []
        for component in networkx.connected_components(graph):
            left, right = (tuple(sorted(n for side, n in component if side == which)) for which in (0, 1))
            changes.append(Change(self._what(left, right, members), left, right))
        return tuple(
            sorted(changes, key=lambda c: (c.what == "the same", -len(c.left) - len(c.right), c.left, c.right))
        )

    def _what(self, left: tuple[int, ...], right: tuple[int, ...], members: tuple[list[set[int]], ...]) -> str:
        if not right:
            return f"only in {self.names[0]}"
        if not left:
            return f"only in {self.names[1]}"
        if len(left) == len(right) == 1:
            own, others = members[0][left[0]], {self.places[i] for i in members[1][right[0]]}
            if len(own & others) < ALIKE * len(own | others):
                return "other operations"
            return "the same" if self._schedules(left[0], right[0]) else "another schedule"
        return "split" if len(left) == 1 else "merged" if len(right) == 1 else "cut otherwise"

    def _schedules(self, left: int, right: int) -> bool:
        a, b = self.left.kernels[left], self.right.kernels[right]
        return (a.schedule, a.launch) == (b.schedule, b.launch)

    def verdict(self) -> str:
        """Return how they differ, in a sentence."""
        changed = [c for c in self.changes if c.what != "the same"]
        if not changed:
            return "Both have the same kernels." if self.changes else "Neither has stitched kernels."
        a, b = self.names
        left, right = (
            f"{count(p.launches, 'launch', 'launches')} and {format_bytes(p.bytes)}" for p in (self.left, self.right)
        )
        return f"{len(changed):,} of {len(self.changes):,} places differ. {a}: {left}; {b}: {right}."

    def figures(self) -> list[tuple[str, str, str, str]]:
        """Return (what, first, second, how the second compares) as text."""
        rows = []
        for what, get, shown in _FIGURES:
            a, b = get(self.left), get(self.right)
            change = format_faster if shown is format_seconds else format_fewer
            rows.append((what, shown(a), shown(b), change(b, a)))
        return rows

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        differ = sum(c.what != "the same" for c in self.changes)
        return f"<PlanDiff of {self.left.function}: {' and '.join(self.names)}, {differ} places differ>"

    def _lines(self) -> Iterator[str]:
        yield f"{self.left.function}: {self.names[0]} and {self.names[1]}"
        yield ""
        yield text_table(("per call", *self.names, "change"), self.figures(), right=(1, 2, 3), indent="  ")
        yield f"  {self.verdict()}"
        changed = [c for c in self.changes if c.what != "the same"]
        if changed:
            yield ""
            yield text_table(("change", *self.names, "predicted"), map(self._row, changed), indent="  ")

    def _row(self, change: Change) -> tuple[str, str, str, str]:
        sides = ((self.left, change.left), (self.right, change.right))
        names = ["; ".join(shorten(p.program.after.kernels[n].title, 60) for n in ids[:3]) for p, ids in sides]
        more = [f" and {len(ids) - 3} more" if len(ids) > 3 else "" for _, ids in sides]
        times = [format_seconds(sum(p.program.after.kernels[n].seconds for n in ids)) for p, ids in sides]
        left, right = (name + m or "-" for name, m in zip(names, more, strict=True))
        return change.what, left, right, " -> ".join(times)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "function": self.left.function,
            "names": list(self.names),
            "figures": [list(row) for row in self.figures()],
            "changes": [
                {
                    "what": c.what,
                    "left": [self.left.kernels[n].name for n in c.left],
                    "right": [self.right.kernels[n].name for n in c.right],
                }
                for c in self.changes
            ],
        }

    def _repr_html_(self) -> str:
        from jax_stitch.inspect.page.difference import difference_summary

        return difference_summary(self)

    def to_html(self, path: str | Path) -> Path:
        """Write one page, as ``Plan.to_html`` does, on which the kernels of both can be switched between."""
        from jax_stitch.inspect.page.difference import difference_page

        target = Path(path)
        target.write_text(difference_page(self), encoding="utf-8")
        return target


_FIGURES: tuple[tuple[str, Any, Any], ...] = (
    ("launches of jax.jit", lambda p: p.xla_launches, lambda n: f"{n:,}"),
    ("launches, stitched", lambda p: p.launches, lambda n: f"{n:,}"),
    ("bytes of jax.jit", lambda p: p.xla_bytes, format_bytes),
    ("bytes, stitched", lambda p: p.bytes, format_bytes),
    ("predicted, stitched", lambda p: p.program.after.seconds, format_seconds),
    ("stitched kernels", lambda p: len(p.kernels), lambda n: f"{n:,}"),
)


def diff(left: Plan, right: Plan) -> PlanDiff:
    """Return two plans side by side. They should be of one program: operations are told by their names.

    Raises ``WrongArgument`` for what is no plan.
    """
    if not hasattr(right, "program"):
        raise WrongArgument(
            f"diff() takes another plan, as plan(device=...) returns it, not {shorten(repr(right), 80)}"
        )
    return PlanDiff(left, right)


def _stitched(plan: Plan) -> list[set[int]]:
    """Return the operations of each stitched kernel."""
    program: PlannedProgram = plan.program
    return [set(k.members) for k in program.after.kernels if k.kind == "stitched"]
