"""A loop in teams as one part of a kernel."""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.emit.cpp.lines import described, source_lines
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.team_loop import LoopWriter
from jax_stitch.graph.model import Graph
from jax_stitch.kernel import model
from jax_stitch.schedule.model import Part


class TeamEmitter:
    """Makes one loop; the same interface as ``PartEmitter``."""

    def __init__(self, graph: Graph, part: Part, crossing: Collection[int] = ()):
        """Take the scheduled team; ``crossing`` are the ids of values that other phases of the kernel write."""
        assert part.team is not None
        self._crossing = crossing
        self._graph, self._part = graph, part
        self._team, self._loop = part.team, part.team.loop
        outer = Names(graph)
        self._buffers = {i: f"in_{outer.of(graph[i])}" for i in part.pattern.inputs}
        self._out = {i: f"out_{outer.of(graph[i])}" for i in part.pattern.outputs}
        names = Names(self._loop.body)
        self._writer = LoopWriter(graph, part, self._team, names, self._buffers, {}, self._out)

    def emit(self, name: str) -> model.Part:
        """Return the part under a name."""
        loop, team, writer = self._loop, self._team, self._writer
        spread = loop.blocks > 1
        statements = writer.statements()
        return model.Part(
            name,
            model.TeamShape(loop.rows, team.threads, spread, loop.pieces),
            self._part.wide,
            self._parameters(spread),
            writer.combiners(),
            (),
            writer.tables(),
            writer.declared(),
            statements,
            (),
            self._comments(),
        )

    def _parameters(self, spread: bool) -> tuple[model.Parameter, ...]:
        pattern = self._part.pattern
        parameters: list[model.Parameter] = []
        for i in pattern.inputs:
            tensor = self._graph[i].tensor
            parameters.append(model.Parameter(self._buffers[i], tensor.dtype, tensor.size, False, i in self._crossing))
        for i in pattern.outputs:
            tensor = self._graph[i].tensor
            parameters.append(model.Parameter(self._out[i], tensor.dtype, tensor.size, True))
        for k, tensor in enumerate(self._team.scratch):
            parameters.append(model.Parameter(f"scratch_{k}", tensor.dtype, tensor.size, False, spread, scratch=True))
        return tuple(parameters)

    def _comments(self) -> tuple[str, ...]:
        loop, team = self._loop, self._team
        parts = f"{loop.rows} teams of {team.threads} threads" if loop.rows > 1 else f"a team of {team.threads} threads"
        parts += f" in each of {loop.blocks} blocks" if loop.blocks > 1 else ""
        parts += f" with helpers for {loop.pieces - 1} of {loop.pieces} pieces" if loop.pieces > 1 else ""
        steps = "as many steps as it takes" if loop.trips is None else f"{loop.trips} steps"
        what = f"a loop of {steps}" if loop.carried else _without_steps(loop)
        words = described(f"{what}, {parts}, {len(team.groups)} sweeps a step")
        return (words, *source_lines(loop.body.nodes))


def _without_steps(loop: TeamLoop) -> str:
    """Return a loop of one step as the step alone."""
    made = {loop.body[r].op for r in loop.body.results}
    is_sum = len(loop.stacked) == 1 and made <= {"dot", "reduce", "convert"}
    return "a sum over the steps of a loop" if is_sum else "straight code"
