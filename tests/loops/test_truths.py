"""Truth values that rows keep from one part of a step to the next."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.pipeline import stitch_capture
from tests.kernel.agreement import assert_close, interpreted

CPU = devices.get("cpu")


def halved(start: Any, limit: Any) -> Any:
    """Rows that end apart, each when it is below its limit; what it was is chosen by two truths."""

    def row(x: Any, most: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (carry[0] > most) & ~carry[1]

        def step(carry: Any) -> Any:
            x, stuck, tries = carry
            after = jnp.where(x > 4.0, jnp.sqrt(x), x * 0.75)
            return jnp.where(stuck, x, after), (jnp.abs(after - x) < 1e-2) | (tries > 30), tries + 1

        return jax.lax.while_loop(go_on, step, (x, x < 0, 0))

    return jax.vmap(row)(start, limit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_keep_truths_agree(dtype: str) -> None:
    """A truth that a row keeps is as wide as its floats, and no byte: a choice by a byte among floats made GCC go
    through the rows one by one, which took five times as long. Kept so, it must still be one bit.
    """
    with jax.enable_x64(dtype == "float64"):
        args = [jnp.asarray(np.random.default_rng(k).uniform(-1, 9, 21), dtype) for k in (0, 1)]
        args[1] = args[1] * 0.1
        made = stitch_capture(capture(halved, args, CPU), CPU)
        (kernel,) = made.kernels
        assert "// a loop of as many steps as each row takes" in kernel.source.text
        assert "ST_ROW_TRUTH(" in kernel.source.text and "ST_ROW_VALUE(bool" not in kernel.source.text
        want = [np.asarray(r) for r in jax.jit(halved)(*args)]
        assert_close([np.asarray(r) for r in made.compile("host")(args)], want, "compiled")
        assert_close(interpreted(made, args), want, "interpreted")
