"""A pass over the row that goes through scans: turn by turn, each scan over its operand's values of the turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from jax_stitch.emit.body import PER_PLACE, PER_ROW, Evaluator, Scope
from jax_stitch.emit.lines import indent
from jax_stitch.schedule.model import LoopStage, Order, Split
from jax_stitch.schedule.stages import Shape


@dataclass(frozen=True, slots=True)
class Scanned:
    """A scan in the text: the functor it combines with, the name of its values of a turn, and what it starts from."""

    combiner: str
    name: str
    first: str


def scan_lines(
    shape: Shape,
    stage: LoopStage,
    split: Split,
    values: Evaluator,
    scans: Mapping[int, Scanned],
    roots: Callable[[Scope], None],
) -> list[str]:
    """The lines of a stage with scans; ``roots`` adds what it computes at each place once all scans have values.

    What a scan reads and what follows it are loops of their own over the places of a turn, since all lanes meet in
    between; each recomputes what it needs.
    """
    rows = "_ROWS" if split.order is Order.ROWS else ""
    at = f"{stage.size - 1} - at_" if stage.backward else "at_"
    lines: list[str] = []
    ready: list[int] = []

    def piece(add: Callable[[Scope], None]) -> None:
        scope = values.stage(PER_PLACE, frozenset(stage.uses), frozenset(stage.keeps))
        for i in ready:
            values.provide(i, shape.value_elements(i)[0], f"ST_V({scans[i].name})")
        add(scope)
        body = scope.lines[PER_ROW] + scope.lines[PER_PLACE]
        lines.extend([f"ST_EACH_OF_TURN{rows}({at}, {stage.size}, {stage.turn})", *indent(body), "ST_END_OF_TURN"])

    for together in _in_turn(shape, stage):

        def operands(scope: Scope, together: list[int] = together) -> None:
            for i in together:
                value = values.element(shape.graph[i].operands[0], shape.value_elements(i)[0])
                scope.lines[PER_PLACE].append(f"ST_V({scans[i].name}) = {value.text};")

        piece(operands)
        lines += [f"ST_SCAN{rows}({scans[i].combiner}, {scans[i].name}, {stage.turn})" for i in together]
        ready += together
    piece(roots)
    declared = [
        f"ST_SCANNED{rows}({s.combiner}, {s.name}, {s.first}, {stage.size}, {stage.turn})" for s in scans.values()
    ]
    inner = [*declared, f"ST_TURNS{rows}({stage.size}, {stage.turn})", *indent(lines), "ST_END_TURNS"]
    return inner if rows else ["ST_EACH_SCANNED_ROW", *indent(inner), "ST_END_ROW"]


def _in_turn(shape: Shape, stage: LoopStage) -> Iterator[list[int]]:
    """The scans of a stage in groups, each of those that need only the groups before it."""
    graph, depth = shape.graph, dict[int, int]()
    for i in sorted(shape.pattern.inside):
        above = max((depth.get(o, 0) for o in graph[i].operands), default=0)
        depth[i] = 0 if graph[i].op == "reduce" else above + (i in stage.scans)
    for _, group in groupby(sorted(stage.scans, key=lambda i: (depth[i], i)), key=lambda i: depth[i]):
        yield list(group)
