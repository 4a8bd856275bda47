"""The record of rows fetched by bulk copies: what is compared, and what the table says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import fetches
from jax_stitch import devices
from jax_stitch.backend.compile import NvrtcMissing, nvrtc
from jax_stitch.frontend.capture import cuda_plugin_installed

H200 = devices.get("h200")


@pytest.fixture
def nvidias_compiler() -> None:
    """Registers are its to say."""
    if not cuda_plugin_installed():
        pytest.skip("needs JAX's CUDA plugin")
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.usefixtures("nvidias_compiler")
def test_one_kernel_in_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that registers do not hold: read once where it is fetched, three times where it is not."""
    monkeypatch.setattr(fetches, "COUNTED", 4)
    found = {w.way: w for w in fetches.ways("softmax_last", 20_480, "float32", H200)}
    assert tuple(found) == fetches.WAYS
    plain, fetched, cluster = found.values()
    assert (plain.inputs, fetched.inputs, cluster.inputs) == (0, 1, 0)
    assert fetched.sectors == 1 and plain.sectors == 3 and fetched.shared_bytes > plain.shared_bytes + 4 * 20_480
    assert not any(w.spill_bytes or w.bank_conflicts for w in found.values())
    assert sum(w.chosen for w in found.values()) == 1
    text = fetches.table(list(found.values()), H200)
    assert text.count("softmax_last [4096 x 20480] float32") == 3 and text.count(" * |") == 1


def test_a_device_without_bulk_copies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fetches", "--device", "a100"])
    with pytest.raises(SystemExit):
        fetches.main()


def test_the_record_is_what_was_counted() -> None:
    """No fetched row was read twice, nothing spilled, and none is planned that is predicted to take longer."""
    path = Path(__file__).parents[2] / "bench" / "results" / "fetches.json"
    rows = [fetches.Way(**{**r, "size": tuple(r["size"])}) for r in json.loads(path.read_text())["rows"]]
    plain = {(w.workload, w.size, w.dtype): w for w in rows if w.way == "plain"}
    for w in rows:
        if w.way == "fetched":
            other = plain[w.workload, w.size, w.dtype]
            assert w.inputs and not w.bank_conflicts and w.sectors <= other.sectors
            assert w.spill_bytes <= other.spill_bytes
            assert not w.chosen or w.estimated < other.estimated
    assert fetches.table(rows, H200) == path.with_suffix(".md").read_text().rstrip("\n")
