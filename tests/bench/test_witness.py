"""The table of kernels before and after says what is worse, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.files import write_json
from bench.witness import command, cpu, table
from bench.witness.child import facts
from jax_stitch.graph.model import TensorType
from tests.checking.kernels import kernel as written_by_hand


def kernel(name: str, reads: list[str], **changes: Any) -> dict[str, Any]:
    usual = {"launches": 1, "registers": 32, "spill_bytes": 0, "shared_bytes": 256, "occupancy": 1.0, "sectors": 100}
    more = {"seconds": 1e-6, "least_seconds": 1e-6, "code": name, "instructions": 50, "writes": ["f32[4]"]}
    return {"name": name, "reads": reads, **usual, **more, **changes}


def side(*kernels: dict[str, Any], launches: int = 1) -> dict[str, Any]:
    program = {"launches": launches, "bytes": 320, "others_seconds": 0.0, "others_bytes": 0}
    return {"commit": "c", "kernels": list(kernels), "stitched": program, "done": True}


def written(before: dict[str, Any], after: dict[str, Any]) -> str:
    return table.text([{"workload": "w", "size": [4], "before": before, "after": after}])


def test_what_is_the_same_is_not_marked() -> None:
    assert "**" not in written(side(kernel("a", ["f32[4]"])), side(kernel("a", ["f32[4]"]))).removeprefix(table.HEAD)


@pytest.mark.parametrize(
    ("changes", "marked"),
    [
        ({"least_seconds": 1.03e-6}, "1 → **1.03**"),
        ({"sectors": 110}, "100 → **110**"),
        ({"spill_bytes": 8}, "0 → **8**"),
        ({"registers": 64, "occupancy": 0.5}, "32 → **64**"),
        ({"registers": 40}, "32 → 40"),
        ({"least_seconds": 1.01e-6}, "1 → 1.01"),
    ],
)
def test_what_is_worse_is_marked(changes: dict[str, Any], marked: str) -> None:
    assert marked in written(side(kernel("a", ["f32[4]"])), side(kernel("b", ["f32[4]"], **changes)))


def test_a_reason_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    both = side(kernel("a", ["f32[4]"])), side(kernel("a", ["f32[4]"]), launches=2)
    assert table.UNEXPLAINED in written(*both)
    monkeypatch.setattr(table, "reasons", lambda device: {"w": "for accuracy"})
    assert table.UNEXPLAINED not in written(*both)
    assert "for accuracy" in written(*both)


def test_kernels_meet_by_what_they_read_and_write() -> None:
    a, b, c = kernel("a", ["f32[4]"]), kernel("b", ["f32[8]"]), kernel("c", ["f32[16]"], writes=["f32[16]"])
    other, alone = kernel("e", ["f32[8]"]), kernel("f", ["f32[32]"], writes=["f32[2]"])
    found = table.pairs(side(a, b, c), side(kernel("d", ["f32[4]"]), other, alone))
    names = [tuple(k and k["name"] for k in pair) for pair in found]
    assert names == [("a", "d"), ("b", "e"), ("c", None), (None, "f")]


def test_times_in_turn() -> None:
    times = {"plain": 1.0, "before": 1.0, "after": 1.1, "ratio": 1.1, "least": 1.05, "most": 1.2}
    slow = cpu.text([{"workload": "w", "size": [4], "times": times}])
    assert "1 slower by more than 2 %" in slow
    assert table.UNEXPLAINED in slow
    noisy = cpu.text([{"workload": "w", "size": [4], "times": {**times, "least": 0.9}}])
    assert table.UNEXPLAINED not in noisy


def test_a_new_machine_goes_on_from_the_record(tmp_path: Path) -> None:
    """What there is already is newer."""
    record, folder = tmp_path / "record.json", tmp_path / "build"
    command.restored(record, folder)
    rows = [{"workload": w, "before": {"from": "record"}, "times": {"from": "record"}} for w in ("a", "b")]
    write_json(record, {"rows": rows})
    (folder / "times").mkdir(parents=True)
    (folder / "times" / "b.json").write_text('{"from": "here"}')
    command.restored(record, folder)
    said = {f"{p.parent.name} {p.stem}": json.loads(p.read_text())["from"] for p in folder.rglob("*.json")}
    assert said == {"before a": "record", "before b": "record", "times a": "record", "times b": "here"}


def test_sectors_stay_with_kernels_that_are_the_same_but_not_those_of_several_parts_counted_before() -> None:
    def row(code: str, parts: int | None, **more: Any) -> dict[str, Any]:
        row = {"code": code, "grid": 512, "block": 256, "composition": ["packing"], **more}
        return row if parts is None else row | {"parts": parts}

    counted = {"sectors": 7, "faults": 0}
    before = {"kernels": [row("a", None, **counted), row("b", None, **counted), row("c", 2, **counted)]}
    waiting = row("b", 2, composition=["grid"])  # Its blocks wait for each other: all of them were run.
    found = {"kernels": [row("a", 1), row("b", 2), waiting, row("c", 2)]}
    command._keep_sectors(found, before)
    assert [k.get("sectors") for k in found["kernels"]] == [7, None, 7, 7] and "sectors_done" not in found


@pytest.mark.parametrize(
    ("parts", "grid", "expected"),
    [
        ([8], 8, [(None, 1.0)]),
        (None, 4096, [(None, 1.0)]),
        ([4096], 4096, [(64, 64.0)]),
        ([4096, 8], 4104, [(64, 64.0), (8, 1.0)]),
        ([1024] * 9, 9216, [(32, 32.0)] * 9),
    ],
)
def test_each_part_has_blocks_that_stand_for_its_others(
    parts: list[int] | None, grid: int, expected: list[tuple[int | None, float]]
) -> None:
    found = facts.samples_of(SimpleNamespace(grid=grid, cluster=1), parts)
    assert [(None if blocks is None else len(set(blocks)), scale) for blocks, scale in found] == expected
    first = 0
    for (blocks, _), count in zip(found, parts or (), strict=False):
        assert blocks is None or (min(blocks) == first and first <= max(blocks) < first + count)
        first += count


LOOPS = {
    # Eight steps write to one sector.
    "by themselves": """
  using index = int32_t;
  for (index step = 0; step < 200; ++step) {
    out0[step + (t + b * 64) * 200] = in0[(step * 2 + b) * 64 + t];
  }""",
    # Each step reads what all blocks wrote in the one before, and all steps the same sectors.
    "together": """
  using index = int32_t;
  for (index step = 0; step < 20; ++step) {
    out0[t + b * 64 + step * 128] = in0[t] + (step ? out0[t + (1 - b) * 64 + (step - 1) * 128] : 0);
    ST_GRID_SYNC
  }""",
}


@pytest.mark.parametrize("how", LOOPS)
def test_a_long_loop_goes_on_as_its_first_steps_do(how: str) -> None:
    tensors = {"inputs": (TensorType("f32", (25600,)),), "outputs": (TensorType("f32", (25600,)),)}
    source = written_by_hand(LOOPS[how], grid=2, phases=(2, 1) if how == "together" else (), **tensors)
    moved, _ = facts.of_all_parts(source, None, 1 << 20)
    assert facts.of_all_steps(source, None, 1 << 20) == (moved, 0)
    assert facts.shortened(source, 3).text.count("step < 3;") == 1


def test_what_was_measured_stands_beside_the_kernel_of_the_same_name_blocks_and_threads() -> None:
    made = {"grid": 64, "block": 256}
    rows = [
        {"workload": "w", "name": "a", **made, "nanoseconds": 1500.0, "memory_read": 2048.0},
        {"workload": "other", "name": "b", **made, "nanoseconds": 9000.0, "memory_read": 1.0},
    ]
    after = side(kernel("a", ["f32[4]"], **made), kernel("b", ["f32[5]"], **made))
    text = table.text([{"workload": "w", "size": [4], "before": after, "after": after}], table.measured(rows))
    assert "| 1.5 | 2,048 |" in text and text.count("| - | - |") == 1
