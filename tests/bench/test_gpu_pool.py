"""Cases of a session on a GPU: what hangs or crashes is named and passed by."""

from __future__ import annotations

import pytest

from bench.gpu import pool
from bench.gpu.compositions import COMPOSITIONS
from bench.gpu.correctness import all_cases
from bench.workloads import ALL


def asked(*how: str) -> list[pool.Case]:
    return [pool.Case(f"{k} {h}", "tests.bench.gpu_cases", {"how": h}) for k, h in enumerate(how)]


def quiet(line: str) -> None:
    pass


def test_what_hangs_or_crashes_is_named_and_the_rest_runs() -> None:
    cases = asked("well", "hang", "well", "crash", "raise", "WRONG", "well")
    found = pool.run(cases, 3.0, 60.0, 1, fresh=False, show=quiet)
    verdicts = ["well", "HUNG", "well", "FAILED", "FAILED", "WRONG", "well"]
    assert [f.verdict for f in found] == verdicts
    assert found[1].told == "while launching" and found[1].seconds < 8
    assert "an illegal access" in found[4].told and "while launching" in found[4].told
    assert pool.exit_status(found) == 1
    counts, *bad = pool.summary(found)
    assert counts == "3 well, 1 WRONG, 2 FAILED, 1 HUNG" and [line.split()[0] for line in bad] == ["1", "3", "4", "5"]


@pytest.mark.parametrize("fresh", [False, True])
def test_processes_are_used_again_or_not(fresh: bool) -> None:
    """After an illegal access a process launches nothing any more: compositions each have their own."""
    found = pool.run(asked("well", "well", "well"), 20.0, 60.0, 1, fresh=fresh, show=quiet)
    assert len({f.told for f in found}) == (3 if fresh else 1)


def test_no_time_is_no_verdict() -> None:
    found = pool.run(asked("well", "hang", "well"), 99.0, 4.0, 1, fresh=False, show=quiet)
    assert [f.verdict for f in found] == ["well", "no time", "no time"]
    assert pool.exit_status(found) == 10
    assert pool.exit_status([pool.Found("a", "not here")]) == 1, "nothing was done"
    assert pool.exit_status([pool.Found("a", "not here"), pool.Found("b", "well")]) == 0


def test_each_workload_is_asked_for_once_before_any_twice() -> None:
    names = [case.request["name"] for case in all_cases()]
    assert set(names[: len(ALL)]) == set(ALL) and len(names) > 2 * len(ALL)


def test_every_composition_has_a_case() -> None:
    from jax_stitch.inspect.report.plan import COMPOSITIONS as KNOWN

    assert next(iter(COMPOSITIONS)) == "tiny" and {c.wanted for c in COMPOSITIONS.values()} == {"", *KNOWN}
