"""A kernel's text says all of it: what is read back is the same kernel."""

from __future__ import annotations

import pytest

from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.tokens import KernelTextError
from tests.kernel import programs


def assert_read_back(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        assert parse(text(kernel)) == kernel


@pytest.mark.parametrize("device", programs.DEVICES)
@pytest.mark.parametrize("name", programs.NAMES)
def test_kernels_of_each_kind_are_read_back(name: str, device: str) -> None:
    """Catches a field that is not written, a type or a range that is guessed wrongly, terms of an index reordered."""
    assert_read_back(programs.kernels(name, device))


@pytest.mark.parametrize("name", ["softmax", "scale_gradient", "cross_entropy"])
def test_kernels_of_clusters_are_read_back(name: str) -> None:
    assert_read_back(programs.cluster_kernels(name))


@pytest.mark.parametrize("seed", range(12))
def test_kernels_of_random_programs_are_read_back(seed: int) -> None:
    """Types that no workload has: bits of a NaN, the least integer, sub-word floats in structures."""
    for device in programs.DEVICES:
        for kernel in programs.random_kernels(seed, device):
            assert parse(text(kernel)) == kernel


WRONG = [
    ("wide=false", "wider=false"),
    ("wide=false", "wide false"),
    ("shape {", "shaped {"),
    ("row_shape rows=", "row_shape rows=many "),
    (" = multiply(", " = multiply(("),
]


@pytest.mark.parametrize(("old", "new"), WRONG)
def test_a_wrong_text_is_refused_with_its_line(old: str, new: str) -> None:
    (kernel,) = programs.kernels("a table", "h200")
    good = text(kernel)
    line = good[: good.index(old)].count("\n") + 1
    with pytest.raises(KernelTextError, match=f"line {line}:"):
        parse(good.replace(old, new, 1))
