"""A loop's variable is what its statement calls it: no name is known besides."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from tests.kernel import programs

LOOP = re.compile(r"\b(?:serial|lane|unrolled)\((\w+), \d+\)")


def with_other_names(kernel: Kernel) -> Kernel:
    """Return a kernel with a new name for each variable that a loop says."""
    old = text(kernel)
    names = sorted(set(LOOP.findall(old)))
    assert names
    return parse(re.sub(rf"\b({'|'.join(names)})\b(?!=)", r"other_\1", old))


def inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 5, b.dims).astype(ELEMENT_TYPES[b.dtype].numpy) for b in kernel.inputs if prod(b.dims)]


@pytest.mark.parametrize("device", programs.DEVICES)
@pytest.mark.parametrize("name", ["standardised", "scan", "in runs", "sort", "square sum", "lstm"])
def test_other_names_change_nothing(name: str, device: str) -> None:
    """Catches an analysis, or the meaning of a statement, that knows the names which the lowering gives."""
    for kernel in programs.kernels(name, device):
        other = with_other_names(kernel)
        assert not verify(other)
        given = inputs(kernel)
        for got, wanted in zip(interpret(other, given), interpret(kernel, given), strict=True):
            np.testing.assert_array_equal(got, wanted)
