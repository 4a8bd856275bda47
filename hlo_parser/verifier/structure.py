"""Names, order and reachability: everything that can be said without looking at shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..model import Computation, Module
from ..notations import COMPUTATION_KEYS
from ..values import Verbatim
from .fault import Fault


def structure_faults(module: Module) -> list[Fault]:
    """Return faults in names, roots, parameters, order and calls."""
    repeated = _repeated(c.name for c in module.computations)
    faults = [Fault(f"{n} computations are named %{name}") for name, n in repeated]
    if sum(c.is_entry for c in module.computations) > 1:
        faults.append(Fault("more than one computation is marked ENTRY"))
    for c in module.computations:
        faults += _computation_faults(c)
    known = {c.name for c in module.computations}
    calls: dict[str, set[str]] = {c.name: set() for c in module.computations}
    for c in module.computations:
        for i in c:
            for key, value in i.attributes.items():
                if key in COMPUTATION_KEYS and not isinstance(value, Verbatim):
                    for name in (value,) if isinstance(value, str) else value:
                        if name in known:
                            calls[c.name].add(name)
                        else:
                            faults.append(Fault(f"{key} names %{name}, which is no computation", c.name, i.name))
    cycle = _cycle(calls)
    if cycle:
        faults.append(Fault("computations call each other in a circle: " + " -> ".join(f"%{n}" for n in cycle)))
    return faults


def _repeated(names: Iterator[str]) -> list[tuple[str, int]]:
    return [(name, n) for name, n in Counter(names).items() if n > 1]


def _computation_faults(c: Computation) -> Iterator[Fault]:
    if not c.instructions:
        yield Fault("has no instructions", c.name)
        return
    for name, n in _repeated(i.name for i in c):
        yield Fault(f"{n} instructions are named %{name}", c.name, name)
    roots = [i.name for i in c if i.is_root]
    if len(roots) != 1:
        yield Fault(f"has {len(roots)} roots" + "".join(f" %{r}" for r in roots), c.name)
    numbers = sorted(-1 if i.parameter_number is None else i.parameter_number for i in c if i.opcode == "parameter")
    if numbers != list(range(len(numbers))):
        yield Fault(f"its parameters are numbered {numbers}, not 0 to {len(numbers) - 1}", c.name)
    position = {i.name: n for n, i in enumerate(c)}
    needs: dict[str, set[str]] = {}
    late: list[tuple[str, str]] = []
    for n, i in enumerate(c):
        needs[i.name] = set()
        for name in (*i.operands, *i.control_predecessors):
            if name not in position:
                yield Fault(f"reads %{name}, which is no instruction of this computation", c.name, i.name)
                continue
            needs[i.name].add(name)
            if position[name] >= n:
                late.append((i.name, name))
    cycle = _cycle(needs) if late else []
    if cycle:
        yield Fault("depends on itself: " + " -> ".join(f"%{n}" for n in cycle), c.name, cycle[0])
    else:
        for name, needed in late:
            yield Fault(f"reads %{needed}, which comes after it", c.name, name)


def _cycle(edges: dict[str, set[str]]) -> list[str]:
    """Return nodes of some cycle, the first again at the end; empty where there is none."""
    done: set[str] = set()
    for start in edges:
        path: dict[str, Iterator[str]] = {start: iter(sorted(edges[start]))} if start not in done else {}
        while path:
            node = next(reversed(path))
            following = next(path[node], None)
            if following is None:
                done.add(node)
                del path[node]
            elif following in path:
                names = list(path)
                return [*names[names.index(following) :], following]
            elif following not in done:
                path[following] = iter(sorted(edges[following]))
    return []
