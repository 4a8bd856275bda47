"""The workloads' dumps are planned as the functions are, and compute the same. All of them: ``python -m bench hlo``."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from bench import hlo, suites
from bench.workloads import ALL
from jax_stitch import devices, plan_hlo, stitch_jit
from jax_stitch.frontend.capture import capture

FAST = ("softmax_last", "standardise", "logistic_map")
MORE = ("layer_norm_gradient", "cumsum", "gelu_mlp")
DEVICES = ("cpu", "h200")


@pytest.mark.parametrize("names", [FAST, pytest.param(MORE, marks=pytest.mark.slow)], ids=["fast", "more"])
def test_dumps_are_planned_as_the_functions_are(names: tuple[str, ...]) -> None:
    """Catches a dump that XLA gets as another program, and functions planned on kernels that are not in XLA's final
    program: of ``standardise`` on the CPU nothing was stitched, and two kernels of its dump. All in one test, which
    ``--quick`` then runs whole.
    """
    cases = suites.cases("all", only=names, small=True)
    rows = [row for case in cases for device in DEVICES for row in hlo.planned(case, device)]
    assert len(rows) == 12 and all(row.same for row in rows), "\n".join(map(str, rows))


def test_another_grouping_by_xla_gets_a_plan_as_good() -> None:
    """Of this dump XLA makes one more kernel: the planner looked at fewer plans, and took one with eight blocks."""
    (case,) = suites.cases("all", only=["batch_norm_gradient"])
    rows = list(hlo.planned(case, "h200"))
    moved = {figures[2] for row in rows for figures in (row.function, row.dump)}
    assert max(moved) - min(moved) < 1000, "\n".join(map(str, rows))


@pytest.mark.parametrize("device", DEVICES)
def test_what_cudnn_does_is_planned_the_same(device: str) -> None:
    """In XLA's final program a convolution with what follows is one call, and takes its operands in another order of
    dimensions: functions were planned on another compilation.
    """

    def fun(image: Any, filters: Any, bias: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(image, filters, (1, 1), "SAME", dimension_numbers=numbers)
        y = jax.nn.relu(y + bias)
        return (y - y.mean((0, 1, 2))) / (y.std((0, 1, 2)) + 1e-3)

    args = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((4, 16, 16, 8), (3, 3, 8, 8), (8,))]
    captured = capture(fun, args, devices.get(device))
    plans = [plan_hlo(hlo.dump(fun, args, captured, form), device) for form in hlo.FORMS]
    expected = stitch_jit(fun).plan(*args, device=device)
    figures = [[(k.launch, k.bytes_read, k.bytes_written, k.schedule) for k in p.kernels] for p in (expected, *plans)]
    assert expected.kernels and figures == figures[:1] * 3
    assert ("__cudnn$" in captured.default_text) == (device == "h200"), "that is what is tested"


@pytest.mark.parametrize("name", ["softmax_last", "logistic_map"])
def test_dumps_compute_what_the_functions_do(name: str) -> None:
    (case,) = suites.cases("all", only=[name], small=True)
    rows = [row for device in DEVICES for row in hlo.computed(case, device)]
    assert len(rows) == 6 and all(row.same for row in rows), "\n".join(map(str, rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_workloads_compute_the_same(name: str) -> None:
    (case,) = suites.cases("all", only=[name], small=True)
    assert all(row.same for device in DEVICES for row in hlo.computed(case, device))
