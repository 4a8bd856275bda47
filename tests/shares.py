"""``pytest --quick``: every test function, and of those with many cases as many as its share of the time allows.

What cases cost is in ``shares.json``, in seconds of processor time: the median of a function's cases, and the dear
ones. ``pytest --costs FILE`` writes down what each case of a run took, ``python -m tests.shares FILE...`` puts that
into ``shares.json``, in the place of what it says of the same functions and cases.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

FILE = Path(__file__).parent / "shares.json"

SHARE = 0.5
"""Seconds of one function's cases. One case is always run."""

DEAR = 1.5
"""Seconds of a case that is run only where its function has no other."""

USUAL = 0.2
"""Seconds of a case of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Known:
    """What cases cost."""

    medians: Mapping[str, float]
    """By function."""
    dear: Collection[str]
    """Cases."""


def case_of(nodeid: str) -> str:
    """A case without the group that it shares a process with."""
    return nodeid.partition("@")[0]


def function_of(case: str) -> str:
    return case.partition("[")[0]


def chosen(cases: Sequence[str], known: Known) -> set[str]:
    """Of the cases of all functions, in order, those that are run: spread evenly over each function's own."""
    functions: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        functions[function_of(case_of(case))].append(case)
    found: set[str] = set()
    for name, own in functions.items():
        cheap = [case for case in own if case_of(case) not in known.dear] or own[:1]
        count = min(len(cheap), max(1, int(SHARE / max(known.medians.get(name, USUAL), 1e-3))))
        found.update(cheap[k * len(cheap) // count] for k in range(count))
    return found


def known_costs() -> Known:
    content = json.loads(FILE.read_text()) if FILE.exists() else {"medians": {}, "dear": []}
    return Known(content["medians"], frozenset(content["dear"]))


class Quick:
    """Leaves out the other cases."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        run = chosen([item.nodeid for item in items if "slow" not in item.keywords], known_costs())
        run |= {item.nodeid for item in items if "every_case" in item.keywords}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in run])
        items[:] = [item for item in items if item.nodeid in run]


class Costs:
    """Writes a line for each case: its seconds of processor time, those of child processes too, and its name."""

    def __init__(self, path: str):
        self._path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _seconds()
        result = yield
        with open(self._path, "a") as lines:
            print(json.dumps([round(_seconds() - before, 3), item.nodeid]), file=lines)
        return result


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measured(lines: Sequence[str]) -> Known:
    """What ``Costs`` wrote."""
    seconds: dict[str, list[float]] = defaultdict(list)
    dear = []
    for line in lines:
        took, nodeid = json.loads(line)
        seconds[function_of(case_of(nodeid))].append(took)
        if took > DEAR:
            dear.append(case_of(nodeid))
    return Known({name: round(median(each), 3) for name, each in seconds.items()}, dear)


def main(paths: Sequence[str]) -> None:
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    new, known = measured(lines), known_costs()
    run = {case_of(json.loads(line)[1]) for line in lines}
    medians = {**known.medians, **new.medians}
    dear = [*new.dear, *(case for case in known.dear if case not in run)]
    content = {"medians": dict(sorted(medians.items())), "dear": sorted(dear)}
    FILE.write_text(json.dumps(content, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
