"""``python -m bench units``: what each kernel takes beside XLA's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main

PROGRAMS = """
import jax, jax.numpy as jnp, numpy as np

def softmaxes():
    x = np.linspace(0, 1, 1 << 16, dtype=np.float32).reshape(64, 1024)
    return lambda x: (jax.nn.softmax(x), jax.nn.softmax(x, 0) @ jnp.ones((1024, 1024))), (x,)

def open_loop():
    def halved(x):
        return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
    return halved, (np.ones(1000, np.float32),)

PROGRAMS = {"softmaxes": softmaxes, "open loop": open_loop}
"""


def test_units_of_a_file_are_timed_beside_xlas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "programs.py", tmp_path / "units.json"
    file.write_text(PROGRAMS, encoding="utf-8")
    assert main(["units", "--programs", str(file), "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
    assert "softmaxes" in {row["program"] for row in rows}
    assert not any("while" in name for row in rows for name in row["kernels"]), "how long it runs depends on values"
    assert all(0 < row[what] < 0.1 for row in rows for what in ("xla", "own", "own_predicted"))
    assert "stitched / predicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--programs", "nowhere.py"], "no file nowhere.py"), (["--suite", "micro", "--only", "cart_pole"], "cart_pole")],
)
def test_nothing_to_time_is_said(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["units", *options])
    assert told in capsys.readouterr().err
