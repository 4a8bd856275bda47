"""``python -m bench.versions``: two versions of JAX beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.files import Results
from bench.rows import Row, Side
from bench.versions import main


def row(name: str, launches: int | None, status: str = "ok") -> Row:
    given = Row(name, "scans", (8, 16), "float32", "h200", "ok", jit=Side(launches=9), bound_bytes=100)
    given = replace(given, stitched=Side(launches=launches, bytes=150))
    return replace(given, status="failed", reason="no plan") if status == "failed" else given


def written(folder: Path, version: str, *rows: Row) -> str:
    about = {"packages": {"jax": version}, "python": "3.12.1", "commit": "0123456789ab", "device": "h200"}
    path = folder / f"{version}.json"
    Results(about | {"options": {"dtype": "float32"}}, rows).write(path)
    return str(path)


@pytest.mark.parametrize(
    ("now", "status", "told"),
    [
        (row("cumsum", 1), 0, "1 the same"),
        (row("cumsum", 4), 1, "MORE LAUNCHES"),
        (row("cumsum", None), 1, "NOT PLANNED"),
        (row("cumsum", 1, "failed"), 1, "FAILED: no plan"),
    ],
)
def test_the_exit_status_tells_of_what_became_worse(now: Row, status: int, told: str, tmp_path: Path) -> None:
    """A table that is only looked at lets a slower version through."""
    old, new = written(tmp_path, "0.10.2", row("cumsum", 1)), written(tmp_path, "0.11.2", now)
    out = tmp_path / "table.md"
    assert main([old, new, "--out", str(out)]) == status
    text = out.read_text(encoding="utf-8")
    assert told in text and "jax 0.10.2 and 0.11.2" in text and "| cumsum [8 x 16] | 9 | 1 | 1.50 | 9 |" in text


def test_fewer_launches_are_well(tmp_path: Path) -> None:
    old, new = written(tmp_path, "0.10.2", row("cumsum", 4)), written(tmp_path, "0.11.2", row("cumsum", 1))
    assert main([old, new, "--out", str(tmp_path / "table.md")]) == 0
    assert "fewer launches" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_other_workloads_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that only one file has would be left out without a word."""
    old, new = written(tmp_path, "0.10.2", row("cumsum", 1)), written(tmp_path, "0.11.2", row("softmax", 1))
    with pytest.raises(SystemExit):
        main([old, new, "--out", str(tmp_path / "table.md")])
    assert "different workloads" in capsys.readouterr().err


def test_rows_of_what_was_not_run_stay(tmp_path: Path) -> None:
    """A table of 57 workloads would shrink to the one that changed, or a row be there twice."""
    out = tmp_path / "table.md"
    first = [written(tmp_path, v, row("cumsum", 1), row("softmax", n)) for v, n in (("0.10.2", 2), ("0.11.2", 3))]
    assert main([*first, "--out", str(out)]) == 1
    for _ in range(2):
        again = [written(tmp_path, v, row("softmax", 2)) for v in ("0.10.2", "0.11.2")]
        assert main([*again, "--out", str(out), "--keep"]) == 0
        text = out.read_text(encoding="utf-8")
        assert "Of 2 workloads" in text and "2 the same" in text and "MORE" not in text
        assert text.count("| cumsum [8 x 16] * | 9 | 1 |") == 1 and text.count("| softmax [8 x 16] | 9 | 2 |") == 1
        assert "a star (1)" in text
