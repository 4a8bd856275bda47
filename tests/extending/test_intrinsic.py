"""An intrinsic that the package does not have, and a kernel pass that turns rows round in place of sorting them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_stitch.emit.kernel as emission
from jax_stitch.ir.passes import Pass, Pipeline
from jax_stitch.kernel import intrinsics
from jax_stitch.kernel.intrinsics import Extent, Intrinsic, Use
from jax_stitch.kernel.lockstep import Threads
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.statements import Apply, Body
from jax_stitch.kernel.walk import map_bodies
from jax_stitch.util.values import replace
from tests.fusion import forced
from tests.kernel.agreement import interpreted

CODE = """#ifdef __CUDACC__
if (ST_HAS_ROW_) for (int i_ = lane_; i_ < {sizes[0]} / 2; i_ += TL_)
#else
for (int r_ = 0; r_ < active_; ++r_) for (int i_ = 0; i_ < {sizes[0]} / 2; ++i_)
#endif
{{ auto* const row_ = {cells[0]} + r_ * {sizes[0]}; const auto t_ = row_[i_];
   row_[i_] = row_[{sizes[0]} - 1 - i_]; row_[{sizes[0]} - 1 - i_] = t_; }}"""


def meaning(threads: Threads, s: Apply) -> None:
    (field,) = threads.cells[s.cells[0]].fields
    field[...] = field[:, :, ::-1].copy()


def cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    yield "keep", 2 * of.shape.rows * s.sizes[0]


FLIP = Intrinsic("flip", (Use.UPDATES,), meaning, cost, CODE, meets=True, places=0)


def flipped(s: Any) -> Any:
    return replace(s, intrinsic="flip") if isinstance(s, Apply) and s.intrinsic == "sort" else map_bodies(s, each)


def each(body: Body) -> Body:
    return tuple(map(flipped, body))


def flip_rows(kernel: Kernel) -> Kernel:
    return replace(kernel, parts=tuple(replace(p, body=each(p.body)) for p in kernel.parts))


def test_an_intrinsic_and_a_pass_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(intrinsics.TABLE, "flip", FLIP)
    passes = (*emission.KERNEL.passes, Pass("flip-rows", lambda made, _: flip_rows(made)))
    monkeypatch.setattr(emission, "KERNEL", Pipeline("kernel", *passes, verify=emission.verify_kernel))
    x = np.random.default_rng(0).standard_normal((33, 100)).astype(np.float32)
    made = forced.stitched(forced.hlo_of(lambda x: jnp.sort(x, axis=1) * 2, x), forced.device("cpu"))
    for got in (forced.run(made, [x]), interpreted(made, [x])):
        np.testing.assert_array_equal(got[0], x[:, ::-1] * 2)
