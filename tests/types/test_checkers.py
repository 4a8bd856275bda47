"""Type checkers find each mistake in a user's file, and know the types of the rest; so does Python at run time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import pytest

import jax_stitch
from jax_stitch import compare, stitch, stitch_jit
from jax_stitch.jit.tiers.stitched_function import AutotuneChoice, JitOptions, ModeName, PlannerChoice, StitchedFunction
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.jit_arguments import _options_of_jit
from jax_stitch.util.options.modes import Mode
from jax_stitch.util.options.planner_names import PlannerName

ROOT = Path(__file__).resolve().parents[2]
USER = Path(__file__).with_name("user.py")
LINES = USER.read_text(encoding="utf-8").splitlines()
MISTAKES = {n for n, line in enumerate(LINES, 1) if line.endswith("# error")}
KNOWN = {n: line.split("# reveals ")[1] for n, line in enumerate(LINES, 1) if "# reveals " in line and "``" not in line}


def mypy() -> str:
    """What mypy says, with the project's settings: `make lint` has filled its cache."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(USER)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300).stdout


def pyright() -> str:
    command = ["pyright", "--pythonpath", sys.executable, str(USER)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300).stdout


CHECKERS = [mypy, *([pyright] if shutil.which("pyright") else [])]


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_is_found_and_nothing_else(checker: Any) -> None:
    said = checker()
    found = {int(line) for line in re.findall(r"user\.py:(\d+):.*\berror\b", said)}
    assert len(MISTAKES) > 20 and found == MISTAKES, said
    # mypy: note: Revealed type is "X"; pyright: information: Type of "..." is "X"
    shown = dict(re.findall(r'user\.py:(\d+):.*(?:Revealed type|Type of ".*") is "(.*)"', said))
    assert shown.keys() == {str(n) for n in KNOWN}, said
    for n, wanted in KNOWN.items():
        assert wanted in re.sub(r"[\w.]*\.Array", "Array", shown[str(n)]), LINES[n - 1]


def test_types_name_what_there_is() -> None:
    """A mode, a planner or an option of `jax.jit` that is added must be known to type checkers."""
    assert set(get_args(ModeName)) == {mode.value for mode in Mode}
    assert set(get_args(PlannerChoice)) == {name.value for name in PlannerName}
    assert get_args(get_args(AutotuneChoice)[1]) == (Autotune.TOP3.value,)
    assert set(_options_of_jit()) <= JitOptions.__annotations__.keys()


@pytest.mark.parametrize("mode", ["auto", "now", "async", "off"])
def test_a_function_has_what_its_type_promises(mode: ModeName) -> None:
    function = stitch_jit(lambda x: x * 2, mode=mode)
    members = {n for n in vars(StitchedFunction) if not n.startswith("_")} | {"__call__", "__wrapped__", "__name__"}
    assert {"plan", "status", "wait", "lower", "jit_options"} <= members
    assert not [name for name in members if not hasattr(function, name)]


class Model:
    """`stitch_jit` on methods: with and without parentheses, bound and not."""

    @stitch_jit(static_argnums=0, mode="now")
    def step(self, x: Any) -> Any:
        return x + 1

    @staticmethod
    @stitch_jit
    def still(x: Any) -> Any:
        return x + 2

    @classmethod
    @stitch_jit(static_argnums=0)
    def of_class(cls, x: Any) -> Any:
        return x + 3


def test_methods() -> None:
    x, model = jnp.ones(3), Model()
    assert [float(f(x)[0]) for f in (model.step, model.still, Model.of_class)] == [2.0, 3.0, 4.0]
    assert Model.step.plan(model, jax.ShapeDtypeStruct((3,), jnp.float32), device="cpu").function == "step"


def double(x: Any, factor: float = 2.0) -> Any:
    return x * factor


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: stitch_jit(double, mode="nwo"), ValueError, "did you mean 'now'"),
        (lambda: stitch_jit(mode="asynch"), ValueError, "did you mean 'async'"),
        (lambda: stitch_jit(double, mdoe="now"), TypeError, "'mdoe'; did you mean 'mode'"),
        (lambda: stitch_jit(stritc=True), TypeError, "'stritc'; did you mean 'strict'"),
        (lambda: stitch_jit(double, static_argnum=0), TypeError, "did you mean 'static_argnums'"),
        (lambda: stitch_jit(double, xyz=0), TypeError, "unexpected keyword argument 'xyz'"),
        (lambda: stitch_jit(double, planner="beem"), ValueError, "did you mean 'beam'"),
        (lambda: stitch_jit(double, autotune="top"), ValueError, "did you mean 'top3'"),
        (lambda: stitch(double, planner="illp"), ValueError, "did you mean 'ilp'"),
        (lambda: stitch_jit("now"), TypeError, r"takes a function, not 'now'; .*stitch_jit\(mode='now'\)"),
        (lambda: stitch_jit(3), TypeError, "callable value, got 3"),
        (lambda: stitch_jit(double).plan(jnp.ones(3), devise="cpu"), TypeError, "'devise'; did you mean 'device'"),
        (lambda: stitch_jit(double).plan(jnp.ones(3), fatcor=1.0), TypeError, "'fatcor'; did you mean 'factor'"),
        (lambda: stitch_jit(double).plan(jnp.ones(3), device="h20"), ValueError, "did you mean 'h200'"),
        (lambda: compare(double, jnp.ones(3), device=["cpu"]), TypeError, "'device'; did you mean 'devices'"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"(?i){message}"):
        make()


def test_options_of_the_function_itself_are_left_to_it() -> None:
    """A function that takes any named argument must get those that look like ours mistyped."""

    def any_names(**named: Any) -> Any:
        return named["devise"] * 2

    assert stitch_jit(any_names).plan(devise=jnp.ones(3), device="cpu").device.name == "cpu"


def test_the_version_is_in_one_place() -> None:
    """Packaging reads it from the code; the citation file has to repeat it."""
    assert f"\nversion: {jax_stitch.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for file in ("pyproject.toml", "jax_stitch/version.py"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert (f'"{jax_stitch.__version__}"' in text) == file.endswith("version.py"), file
