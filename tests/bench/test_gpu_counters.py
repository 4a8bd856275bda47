"""What a session on a GPU leaves: its rows without samples, and what the profiler counted of each kernel."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.files import read
from bench.gpu import counters, keep
from jax_stitch.frontend.capture import cuda_plugin_installed

HEAD = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def said(number: int, kernel: str, seconds: str, sectors: str) -> list[str]:
    names = ("gpu__time_duration.sum", seconds), ("dram__sectors_read.sum", sectors), ("something", "1")
    return [f'"{number}","7","{kernel}","{name}","x","{value}"' for name, value in names]


def test_each_launch_is_given_its_workload() -> None:
    """Kernels of other programs stand between ours; names come again in another workload."""
    lines = [
        "==PROF== Connected",
        "counted: a stitch_0_add",
        HEAD,
        "counted: a stitch_1_mul",
        "counted: b stitch_0_add",
    ]
    lines += said(0, "stitch_0_add", "1,024", "3") + said(1, "memset", "9", "9")
    lines += said(2, "stitch_1_mul", "7", "4") + said(3, "stitch_0_add", "5", "6")
    found = counters.counted(lines)
    assert [(r["workload"], r["name"], r["nanoseconds"], r["memory_read"]) for r in found] == [
        ("a", "stitch_0_add", 1024.0, 3.0),
        ("a", "stitch_1_mul", 7.0, 4.0),
        ("b", "stitch_0_add", 5.0, 6.0),
    ]
    with pytest.raises(ValueError, match="stitch_1_mul was counted where stitch_0_add was launched"):
        counters.counted(["counted: a stitch_0_add", HEAD, *said(0, "stitch_1_mul", "1", "1")])


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")
def test_kernels_are_prepared_without_a_gpu(tmp_path: Path) -> None:
    assert counters.main(["--prepare", str(tmp_path), "--only", "logsumexp"]) == 0
    (row,) = pickle.loads((tmp_path / "logsumexp.pickle").read_bytes())
    assert row["cubin"][:4] == b"\x7fELF" and row["inputs"] == [("f32", (8192, 1024))]
    assert row["launches"] == 1 and 5e-6 < row["predicted"] < 5e-5 and row["bytes"] > 4 * 8192 * 1024


def archive(path: Path, files: dict[str, Any]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, values in files.items():
            content = json.dumps(values).encode()
            info = tarfile.TarInfo(f"gpu/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_what_was_found_is_kept_without_samples(tmp_path: Path) -> None:
    row = {"workload": "w", "family": "f", "size": [8], "dtype": "float32", "device": "cuda", "status": "ok"}
    timed = {"time": {"median": 2e-6, "spread": 0.1, "samples": [2e-6] * 25}, "device": 1e-6}
    done = row | {"stage": "done", "jit": timed, "stitched": timed}
    suite = {"format": 1, "about": {"gpu": "G"}, "rows": [done, row | {"stage": "waiting"}]}
    made = archive(tmp_path / "gpu.tar.gz", {"micro.json": suite, "verdicts.json": {"exit_status": 0}})
    assert keep.main([str(made), "--out", str(tmp_path)]) == 0
    kept = read(tmp_path / "gpu.json")
    assert len(kept.rows) == 1 and kept.rows[0].device_speedup == 1.0
    assert kept.rows[0].stitched.time is not None and not kept.rows[0].stitched.time.samples
    assert json.loads((tmp_path / "gpu_session.json").read_text()) == {"verdicts": {"exit_status": 0}}


def test_an_archive_without_suites_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keep.main([str(archive(tmp_path / "gpu.tar.gz", {"verdicts.json": {}})), "--out", str(tmp_path)]) == 1
    assert "no suite was run" in capsys.readouterr().err
    assert keep.main([str(tmp_path / "none.tar.gz"), "--out", str(tmp_path)]) == 1
