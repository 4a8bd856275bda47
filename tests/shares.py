"""``pytest --quick``: every test function, and of those with many cases as many as its share of the time allows.

What cases cost is in ``shares.json``: mean seconds of processor time of a case, by function. ``pytest --costs FILE``
writes down what each case of a run took, and ``python -m tests.shares FILE...`` makes that the new ``shares.json``.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "shares.json"

SHARE = 1.0
"""Seconds of processor time of one function's cases. One case is always run."""

USUAL = 0.2
"""Seconds of a case of which nothing is known."""


def group_of(nodeid: str) -> str:
    """The test function of a case."""
    return nodeid.partition("[")[0]


def chosen(cases: Sequence[str], costs: Mapping[str, float]) -> set[str]:
    """Of the cases of all functions, in order, those that are run: spread evenly over each function's own."""
    groups: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        groups[group_of(case)].append(case)
    found: set[str] = set()
    for name, own in groups.items():
        count = min(len(own), max(1, int(SHARE / max(costs.get(name, USUAL), 1e-3))))
        found.update(own[k * len(own) // count] for k in range(count))
    return found


def known_costs() -> dict[str, float]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


class Quick:
    """Leaves out the other cases."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        run = chosen([item.nodeid for item in items if "slow" not in item.keywords], known_costs())
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


def means(lines: Sequence[str]) -> dict[str, float]:
    """What ``Costs`` wrote as mean seconds of a case, by function. The dearest case counts for no more than three times
    the next: the first one pays for what others share.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        seconds, case = json.loads(line)
        found[group_of(case)].append(seconds)
    for each in found.values():
        each.sort()
        if len(each) > 1:
            each[-1] = min(each[-1], 3 * each[-2])
    return {name: round(sum(each) / len(each), 3) for name, each in sorted(found.items())}


def main(paths: Sequence[str]) -> None:
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    FILE.write_text(json.dumps(known_costs() | means(lines), indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
