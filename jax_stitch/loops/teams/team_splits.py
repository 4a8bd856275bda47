"""Ways to give the rows of what a loop carries to teams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jax_stitch.analysis.binding import Binding, Factor, inner
from jax_stitch.analysis.maps import STEP
from jax_stitch.analysis.spread import bind, spread
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType


def splits_of(
    body: Graph, values: Sequence[int], roots: Sequence[int], intermediates: Sequence[int], device: Device, most: int
) -> Iterator[tuple[int, dict[int, Binding]]]:
    """Yield ways to give the rows of carried values to teams: how many teams, and the bindings of all that is cached or
    written; a single team last.
    """
    parameters = [body.parameters[k] for k in values]
    everything = {*parameters, *roots, *intermediates}
    candidates = {n.id for n in body.nodes if n.op not in ("parameter", STEP) and isinstance(n.type, TensorType)}
    candidates |= {n.id for n in body.nodes if n.op == "reduce"}
    # What nothing reads of the step before tells nothing of a step's rows.
    seeds = [p if body.users[p] else body.results[k] for k, p in zip(values, parameters, strict=True)]
    for seed in seeds:
        dims = body[seed].tensor.dims
        for d, size in enumerate(dims):
            teams = teams_of(size, device, most)
            if teams < 2:
                continue
            factors = (Factor(teams, 1), Factor(size // teams)) if size > teams else (Factor(teams, 1),)
            binding = tuple(factors if k == d else inner(n) for k, n in enumerate(dims))
            bound = bind(body, seed, binding, teams, candidates)
            while missing := [
                (body.parameters[k], bound[body.results[k]])
                for k in values
                if body.parameters[k] not in bound and body.results[k] in bound
            ]:
                for parameter, b in missing:
                    if parameter not in bound:
                        spread(body, bound, parameter, b, teams, candidates)
            if all(i in bound for i in parameters):
                yield teams, {i: bound.get(i) or _whole(body, i) for i in everything}
    yield 1, {i: _whole(body, i) for i in everything}


def teams_of(rows: int, device: Device, most: int) -> int:
    """Return over how many teams to spread rows: as many as run at once; on a CPU few enough that a row of weights,
    once read, serves many rows of the batch, ``most`` of them at most. With ``most`` of 1 each has a team.
    """
    if most == 1:
        return rows
    if device.target.lanes_are_vectors:
        most = max(1, min(rows // device.multiprocessors, most))
        return rows // max(r for r in range(1, most + 1) if rows % r == 0)
    return max(t for t in range(1, 4 * device.multiprocessors + 1) if rows % t == 0)


def _whole(body: Graph, i: int) -> Binding:
    return tuple(inner(size) for size in body[i].tensor.dims)
