"""Scans (``cumsum`` and the like) in the HLO that is planned, under every supported version of JAX.

jax 0.11 lowers them for CUDA to XLA's ``scan``; of that XLA makes a serial ``while`` where its associative-scan
rewriter is off, as it was in the options for text whose libraries could not be read.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from jax_stitch.devices import get
from jax_stitch.frontend.capture import analysis_options, capture
from jax_stitch.frontend.capture import function as captured

X = jax.ShapeDtypeStruct((2048, 1024), jnp.float32)

SCANS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "cumsum": lambda x: jnp.cumsum(x, 1) * 2,
    "cumsum of columns": lambda x: jnp.cumsum(x, 0) * 2,
    "cumsum from behind": lambda x: jax.lax.cumsum(x, 1, reverse=True) * 2,
    "cumprod": lambda x: jnp.cumprod(x, 1) * 2,
    "cummax": lambda x: jax.lax.cummax(x, 1) * 2,
    "cumlogsumexp": lambda x: jax.lax.cumlogsumexp(x, 1) * 2,
    "of integers": lambda x: jnp.cumsum(x.astype(jnp.int32), 1) * 2,
    "of a softmax": lambda x: jnp.cumsum(jax.nn.softmax(x), 1),
    "of no whole number of blocks": lambda x: jnp.cumsum(x[:, :1000], 1) * 2,
}


@pytest.mark.parametrize("name", SCANS)
def test_no_scan_is_a_serial_loop_where_libraries_are_switched_off(name: str) -> None:
    """One thread per row walked a loop of 1,024 trips in place of 4 launches."""
    found = capture(SCANS[name], (X,), device=get("h200"))
    assert found._program is not None
    text = found._program.first_text(analysis_options(found.device))
    assert " while(" not in text and "reduce-window" in text


@pytest.mark.parametrize("name", [n for n in SCANS if n != "cumlogsumexp"])
@pytest.mark.parametrize("hidden", [False, True], ids=["XLA's final program", "without libraries"])
def test_a_scan_is_one_launch(name: str, hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both texts have it in steps, as many as the version makes: they are put together again."""
    monkeypatch.setattr(captured, "_hides_operations", lambda text: hidden)
    plan = stitch_jit(SCANS[name]).plan(X, device="h200")
    (kernel,) = plan.kernels
    assert plan.launches == 1 < plan.xla_launches
    assert {"warp", "block"} & set(kernel.composition), "a row is scanned by many threads"
    assert plan.bytes < 1.1 * plan.bound_bytes
