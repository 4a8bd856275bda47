"""The programs of `examples/` run: two as plain jax.jit, one stitched, and in the long tests all of them."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jax_stitch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALL = {
    "mcmc": (32, 20),
    "ode_fit": (16, 6, 2),
    "optimizer": (8, 16),
    "rl_rollout": (64, 10, 2),
    "transformer": (2, 9, 16, 1, 2),
}


def main_of(name: str) -> Callable[..., None]:
    """The example's ``main``; it is imported anew, under the options in force."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., None] = module.main
    return found


def test_all_are_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SMALL.keys()


def test_the_programs_run_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that is wrong by itself, whatever stitching makes of it."""
    compared: list[Any] = []
    monkeypatch.setenv("JAX_STITCH_MODE", "off")
    monkeypatch.setattr(jax_stitch, "compare", lambda f, *args, **kwargs: compared.append(f))
    for name in ("mcmc", "ode_fit"):
        main_of(name)(*SMALL[name])
    assert len(compared) == 2 and "nan" not in capsys.readouterr().out


@pytest.mark.every_case
@pytest.mark.parametrize("name", SMALL)
def test_a_word_in_place_of_a_size_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback of ``int()``."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "many"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith(f"usage: {name}.py [-h] [") and "int value: 'many'" in told


def test_a_loop_is_stitched_and_its_gain_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("rl_rollout")(*SMALL["rl_rollout"], seconds=0.05)
    shown = capsys.readouterr().out
    assert "x as fast" in shown and "fewer" in shown and "DISAGREES" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_all_of_them_stitched(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main_of(name)(*SMALL[name], seconds=0.2)
    shown = capsys.readouterr().out
    assert "x as fast" in shown and "DISAGREES" not in shown
