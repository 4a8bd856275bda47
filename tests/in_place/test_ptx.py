"""What NVIDIA's compiler makes of a kernel that is written in place. Catches: an input read by the cache of constants,
which does not see what is written.
"""

from __future__ import annotations

import re

import pytest

from jax_stitch.backend.compile import NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.emit import emit
from tests.fusion import forced
from tests.in_place import oracle
from tests.in_place.programs import PROGRAMS


@pytest.mark.parametrize("name", ["elementwise", "vector softmax", "adam", "bias"])
def test_what_is_overwritten_is_not_read_as_a_constant(name: str) -> None:
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    made = PROGRAMS[name]
    kernel = forced.stitched(forced.hlo_of(made.fun, *made.args()), forced.device("h200")).kernels[0]
    over = emit(kernel.scheduled, list(oracle.pairs(kernel)))
    assert over.aliases
    constant = [len(re.findall(r"ld\.global\.nc", compile_ptx(s, "sm_90").ptx)) for s in (kernel.source, over)]
    plain = [len(re.findall(r"ld\.global(?!\.nc)", compile_ptx(s, "sm_90").ptx)) for s in (kernel.source, over)]
    assert constant[0] > constant[1] and plain[1] > plain[0]
    if len(over.aliases) == len(over.inputs):
        assert constant[1] == 0
