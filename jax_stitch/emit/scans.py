"""A pass over the row that goes through scans: batch by batch, each scan over its operand's values of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from jax_stitch.analysis.accesses import Element
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Evaluator, Scope
from jax_stitch.ir.indices.variables import PLACE
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.statements import Assign, Axis, Scan, ScanPass, ScanStep
from jax_stitch.kernel.threads import How
from jax_stitch.schedule.model import LoopPass
from jax_stitch.schedule.row_passes import PatternView


def scan_pass(
    shape: PatternView, row_pass: LoopPass, values: Evaluator, scans: Mapping[int, Scan], roots: Callable[[Scope], None]
) -> ScanPass:
    """Return a pass with scans; ``roots`` adds what it computes at each place once all scans have values.

    What a scan reads and what follows it are loops of their own over the places of a batch, since all lanes meet in
    between; each recomputes what it needs.
    """
    steps: list[ScanStep] = []
    ready: dict[Element, Ref] = {}

    def cell(i: int) -> Ref:
        return Ref(scans[i].name, computed(shape.graph[i].tensor.dtype))

    def step(add: Callable[[Scope], None], together: list[int]) -> None:
        scope = values.open(PER_PLACE, frozenset(row_pass.uses), frozenset(row_pass.caches))
        values.provide(ready)
        add(scope)
        body = (*scope.lines[PER_ROW], *scope.lines[PER_PLACE])
        steps.append(ScanStep(body, tuple(scans[i].name for i in together)))

    for together in _groups(shape, row_pass):

        def operands(scope: Scope, together: list[int] = together) -> None:
            for i in together:
                value = values.element(shape.graph[i].operands[0], shape.value_elements(i)[0])
                scope.lines[PER_PLACE].append(Assign(cell(i), value.value))

        step(operands, together)
        ready.update({(i, shape.value_elements(i)[0]): cell(i) for i in together})
    step(roots, [])
    place = Axis(PLACE, row_pass.size, How.LANE)
    return ScanPass(place, row_pass.batch, row_pass.backward, tuple(scans.values()), tuple(steps))


def _groups(shape: PatternView, row_pass: LoopPass) -> Iterator[list[int]]:
    """Yield the scans of a pass in groups, each of those that need only the groups before it."""
    graph, depth = shape.graph, dict[int, int]()
    for i in sorted(shape.pattern.inside):
        above = max((depth.get(o, 0) for o in graph[i].operands), default=0)
        depth[i] = 0 if graph[i].op == "reduce" else above + (i in row_pass.scans)
    for _, group in groupby(sorted(row_pass.scans, key=lambda i: (depth[i], i)), key=lambda i: depth[i]):
        yield list(group)
