"""Workloads on a machine that lacks what only some of them need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.workloads import ALL

LISTED = """
import importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from bench.workloads import ALL
json.dump(list(ALL), sys.stdout)
"""


def listed(missing: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LISTED, missing], capture_output=True, text=True, check=False)


def test_a_machine_without_flax_and_optax_runs_the_others() -> None:
    """A GPU session failed whole where Flax was missing: one family's import was every family's."""
    found = listed("flax,optax")
    assert found.returncode == 0, found.stderr
    names = json.loads(found.stdout)
    assert set(names) < set(ALL)
    plain = {name for name, work in ALL.items() if work.family in {"softmax", "normalisation"}}
    assert plain <= set(names)


@pytest.mark.parametrize("missing", ["numpy", "jax_stitch"])
def test_what_every_workload_needs_is_still_missed(missing: str) -> None:
    """Families were left out silently where the package itself is broken."""
    found = listed(missing)
    assert found.returncode != 0
    assert missing in found.stderr
