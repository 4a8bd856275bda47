"""A report shows a failure without the user's code, and can be made small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_parser
from hlo_parser import FrozenDict
from jax_stitch import __main__, devices, pipeline, stitch_jit
from jax_stitch.emit.cpp import scalar
from jax_stitch.frontend.capture import capture
from jax_stitch.ir.operations import TABLE
from jax_stitch.jit.debug import minimise, outcome, reductions
from jax_stitch.jit.debug.attempt import every_value
from jax_stitch.jit.debug.case import Case, load, random_values, save
from jax_stitch.jit.debug.minimise import smallest
from jax_stitch.jit.debug.plain import run_plain
from jax_stitch.jit.debug.report import reproduce, write_report
from jax_stitch.jit.debug.reports import Settings
from jax_stitch.util.values import replace
from tests.light import make_light
from tests.side_by_side import fallbacks


def block(x: Any, w: Any) -> Any:
    """Products, reductions, a loop and a sort, with one tanh among them."""
    h = jnp.tanh(x @ w)
    m = h.mean(-1, keepdims=True)
    y = (h - m) * jax.lax.rsqrt(((h - m) ** 2).mean(-1, keepdims=True) + 1e-5)
    z = jax.lax.fori_loop(0, 5, lambda i, c: c * 0.5 + jnp.sin(c), y)
    return jax.nn.softmax(z, -1), jnp.sort(z, -1), jnp.cumsum(y.T, 0)


def arguments() -> list[np.ndarray]:
    """Rows that XLA sums in one step: of those in two, the first has windows that no smaller shape would keep."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((64, 32)).astype(np.float32), rng.standard_normal((32, 32)).astype(np.float32)]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAX_STITCH_DEBUG_DIR", str(tmp_path / "reports"))
    make_light(monkeypatch)


def part(x: Any, w: Any) -> Any:
    """Of the block what one of the bugs needs, and a little more."""
    y = jnp.tanh(x) * w[0]
    return jax.nn.softmax(y - y.mean(-1, keepdims=True), -1), jnp.cumsum(y.T, 0)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Path:
    args = arguments()
    captured = capture(getattr(request, "param", block), args, devices.get("cpu"))
    return write_report(captured, None, "for a test", captured.flatten(args))


OF_TWO = pytest.mark.parametrize("report", [part, pytest.param(block, marks=pytest.mark.slow)], indirect=True)


class Here:
    """Attempts in this process, where bugs can be planted."""

    def __init__(self, timeout: float = 0.0) -> None:
        del timeout  # Nothing ends them here.
        self.tried: dict[str, outcome.Outcome] = {}

    def outcome(self, case: Case) -> outcome.Outcome:
        key = str(case.module)
        if key not in self.tried:
            self.tried[key] = outcome.outcome(case)
        return self.tried[key]

    def values(self, case: Case) -> Mapping[str, np.ndarray]:
        return every_value(case)

    def close(self) -> None:
        """There is no process to end."""


def minimised(case: Case) -> tuple[outcome.Outcome, Case]:
    attempts: Any = Here()
    first = attempts.outcome(case)
    assert first.fails, first
    return first, smallest(case, first, attempts, float("inf"))


def opcodes(case: Case) -> list[str]:
    return [i.opcode for c in case.module.computations for i in c if i.opcode not in ("parameter", "tuple")]


def test_what_is_in_a_report(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {p.name for p in report.iterdir()}
    expected = {
        "program.hlo",
        "settings.json",
        "values.npz",
        "failure.txt",
        "plan.txt",
        "versions.json",
        "reproduce.py",
    }
    assert expected < names and any(n.endswith(".cpp") for n in names)
    assert "constant({...})" not in (report / "program.hlo").read_text()
    assert "not stitched: " in (report / "plan.txt").read_text()
    assert json.loads((report / "versions.json").read_text())["jax"] == jax.__version__
    assert reproduce(report) == 0 and "agrees" in capsys.readouterr().out


def test_what_xla_makes_of_the_program_is_what_the_function_returns(report: Path) -> None:
    """Fusions are opened, bitcasts become reshapes and transposes: an error there would be taken for one of ours."""
    case = load(report)
    for found, want in zip(
        run_plain(case.module, case.arguments()), jax.tree.leaves(jax.jit(block)(*arguments())), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_values_of_every_type_come_back(tmp_path: Path) -> None:
    """NumPy's own files know no bfloat16."""
    types = ("bf16", "f16", "f32", "f64", "pred", "s8", "u64", "c64")
    lines = "".join(f"  %p{n} = {t}[3,2]{{1,0}} parameter({n})\n" for n, t in enumerate(types))
    shapes = ", ".join(f"{t}[3,2]{{1,0}}" for t in types)
    names = ", ".join(f"%p{n}" for n in range(len(types)))
    module = hlo_parser.parse(f"HloModule m\n\nENTRY %main {{\n{lines}  ROOT %t = ({shapes}) tuple({names})\n}}\n")
    values = {p.name: random_values(p.shape, n) for n, p in enumerate(module.entry.parameters)}
    assert values["p0"].dtype == ml_dtypes.bfloat16
    save(Case(module, Settings(planner="span"), values), tmp_path)
    again = load(tmp_path)
    assert again.settings == Settings(planner="span")
    for found, want in zip(again.arguments(), values.values(), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)


def fresh(number: float) -> Callable[..., Any]:
    return lambda x: jax.nn.softmax(jnp.tanh(x * number))


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("a defect")


def test_an_internal_error_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "explore", broken)
    x = jnp.ones((4, 8))
    with fallbacks() as messages:
        stitch_jit(fresh(1.5))(x)
        assert not (tmp_path / "reports").exists()
        monkeypatch.setenv("JAX_STITCH_DEBUG", "1")
        function = stitch_jit(fresh(2.5))
        function(x), jax.jit(lambda x: function(x))(x)
    (folder,) = (tmp_path / "reports").iterdir()
    assert len(messages) == 2 and str(folder) in capsys.readouterr().err
    assert "KeyError: 'a defect'" in (folder / "failure.txt").read_text()
    assert reproduce(folder) == 1
    assert "raises: KeyError at " in capsys.readouterr().out
    with pytest.raises(KeyError):
        stitch_jit(fresh(3.5), strict=True)(x)  # strict, and reported all the same
    assert len(list((tmp_path / "reports").iterdir())) == 2


def test_a_report_that_cannot_be_written_leaves_the_failure_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_STITCH_DEBUG_DIR", str(tmp_path / "file" / "reports"))
    monkeypatch.setenv("JAX_STITCH_DEBUG", "1")
    monkeypatch.setattr(pipeline, "explore", broken)
    with fallbacks() as messages:
        stitch_jit(fresh(4.5))(jnp.ones((4, 8)))
    assert len(messages) == 1 and "a defect" in messages[0]
    assert "could not write a report" in capsys.readouterr().err


def test_a_program_that_cannot_be_read_is_reported_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_STITCH_DEBUG", "1")

    def refuse(text: str) -> Any:
        raise hlo_parser.HloParseError("a defect", text, 0)

    monkeypatch.setattr(hlo_parser, "parse", refuse)
    with fallbacks() as messages:
        stitch_jit(fresh(5.5))(jnp.ones((4, 8)))
    (folder,) = (tmp_path / "reports").iterdir()
    assert "internal error" in messages[0] and "could not write a report" in capsys.readouterr().err
    assert "HloModule" in (folder / "program.hlo").read_text() and "a defect" in (folder / "failure.txt").read_text()


@OF_TWO
def test_a_wrong_kernel_is_found_and_made_small(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many instructions the one that is wrong, and what it takes to have a kernel at all."""
    monkeypatch.setattr(scalar, "TABLE", {**TABLE, "tanh": replace(TABLE["tanh"], cpp="sin")})
    case = load(report)
    first, found = minimised(case)
    assert first.kind == outcome.DIFFERS and "result 0" in first.details
    # Of a scan there is also what it adds by, and starts from.
    assert "tanh" in opcodes(found) and len(opcodes(found)) <= 4 < 10 < len(opcodes(case))
    assert sum(reductions.size(found)) < 60 and reductions.size(found)[1] < 40


@OF_TWO
def test_a_stage_that_raises_is_made_small(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = pipeline.emit

    def fails_on_scans(kernel: Any) -> Any:
        if any(graph_node.op == "reduce-window" for graph_node in kernel.graph.nodes):
            raise RuntimeError("a defect")
        return original(kernel)

    monkeypatch.setattr(pipeline, "emit", fails_on_scans)
    first, found = minimised(load(report))
    assert first.kind == outcome.RAISES and first.what.startswith("RuntimeError")
    assert "reduce-window" in opcodes(found) and "while" not in opcodes(found) and len(opcodes(found)) <= 6


WRONG = """
from jax_stitch.util.values import replace
from jax_stitch.backend.compile import host
from jax_stitch.emit.cpp import scalar
host.FLAGS = tuple("-O0" if f == "-O3" else f for f in host.FLAGS)
scalar.TABLE = {**scalar.TABLE, "tanh": replace(scalar.TABLE["tanh"], cpp="sin")}
"""
DEADLY = "import os\nfrom jax_stitch import pipeline\npipeline.explore = lambda *a, **k: os._exit(11)\n"


@pytest.mark.parametrize(
    ("bug", "kind"),
    [
        pytest.param(WRONG, outcome.DIFFERS, id="wrong"),
        pytest.param(DEADLY, outcome.DIED, id="dies", marks=pytest.mark.slow),
    ],
)
def test_the_command_line(
    bug: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a child that has a bug, of which it may die."""
    args = [np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)]
    captured = capture(lambda x: jax.nn.softmax(jnp.tanh(x) * 2), args, devices.get("cpu"))
    folder = write_report(captured, None, "for a test", captured.flatten(args))
    with monkeypatch.context() as patch:
        patch.setattr(minimise, "Attempts", Here)
        assert __main__.main(["minimise", str(folder), "--seconds", "60"]) == 1
    assert "does not fail here: agrees" in capsys.readouterr().err
    (tmp_path / "sitecustomize.py").write_text(bug)
    monkeypatch.syspath_prepend(str(tmp_path))
    seconds = "60" if kind == outcome.DIFFERS else "12"
    assert __main__.main(["minimise", str(folder), "--seconds", seconds, "--json"]) == 0
    made = Path(json.loads(capsys.readouterr().out)["folder"])
    assert made == folder / "minimised" and (made / "failure.txt").read_text().startswith(kind)
    assert len(opcodes(load(made))) < len(opcodes(load(folder)))
    script = [sys.executable, made / "reproduce.py"]
    run = subprocess.run(script, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (run.returncode, kind in run.stdout) == ((1, True) if kind == outcome.DIFFERS else (11, False)), run.stderr


def environment(first: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(first), *(p for p in sys.path if p)])}


def test_a_folder_that_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["minimise", str(tmp_path)]) == 1
    assert "program.hlo" in capsys.readouterr().err


def test_each_step_is_a_program_that_is_right_by_itself(report: Path) -> None:
    """Steps that make no program would be tried in vain; here each is one of XLA's grammar, with values that fit."""
    case = reductions.simplest(load(report))
    seen = 0
    for step in reductions.reductions(case):
        assert not hlo_parser.verify(step.module), step.module
        for parameter, value in zip(step.module.entry.parameters, step.arguments(), strict=True):
            assert value.shape == parameter.shape.dims
        seen += 1
    assert seen > 50 and case.module.attributes == FrozenDict()


def test_each_result_is_compared() -> None:
    cases: Sequence[tuple[Any, Any, bool]] = [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([np.nan, 2]), np.float32([np.nan, 2]), True),
        (np.float32([np.nan, 2]), np.float32([np.inf, 2]), False),
        (np.int32([1, 2]), np.int32([1, 3]), False),
        (np.int32([1, 2]), np.float32([1, 2]), False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
    ]
    for found, want, agrees in cases:
        assert (outcome.difference(0, found, want) == "") == agrees, (found, want)
