"""Values that a team's loop carries and writes over: whoever still reads the last one must have read it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.cost import team_cost
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced

N, STEPS = 17, 5
Step = Callable[[Any, Any], Any]


def counted(a: Any, n: Any) -> Any:
    """The next of a value, written as soon as ``a`` is there."""
    return n + jnp.where(a > 0.3, 1, 2).astype(n.dtype)


def one_place(carry: Any, x: Any) -> Any:
    """A number that its own phase alone goes on with reads a place of another thread."""
    s, n = carry
    a = jnp.exp(-jnp.abs(s)) * 0.5 + x
    z = jnp.minimum(a[9] * 2, x) + n[7].astype(a.dtype) * 0.25
    return (jnp.concatenate([a[:7][::-1], z[None], a[8:]]), counted(a, n)), z


def two_places(carry: Any, x: Any) -> Any:
    """Two such numbers, neighbours in what is put together."""
    s, n = carry
    a = jnp.exp(-jnp.abs(s)) * 0.5 + x
    y, z = (jnp.sin(a[k]) + n[k - 3].astype(a.dtype) * 0.25 for k in (9, 4))
    return (jnp.concatenate([a[:7][::-1], jnp.stack([y, z]), a[9:]]), counted(a, n)), (y, z)


def at_data(carry: Any, x: Any) -> Any:
    """A place that is data."""
    s, n = carry
    a = jnp.exp(-jnp.abs(s)) * 0.5 + x
    z = jnp.minimum(a[9] * 2, x) + n[jnp.argmax(a)].astype(a.dtype) * 0.25
    return (jnp.concatenate([a[:7][::-1], z[None], a[8:]]), counted(a, n)), z


def several(carry: Any, x: Any) -> Any:
    """A few places in another order."""
    s, n = carry
    a = jnp.exp(-jnp.abs(s)) * 0.5 + x
    z = jnp.tanh(a[:5][::-1]) + n[5:10][::-1].astype(a.dtype) * 0.25
    return (jnp.concatenate([a[:7][::-1], z, a[12:]]), counted(a, n)), z


def made(function: Callable[..., Any], args: tuple[Any, ...], device: str) -> Stitched:
    """The loop in teams, whether or not that pays."""
    alone = mock.patch.object(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {}))
    worth = mock.patch.multiple(team_cost, team_seconds=lambda *_: 0.0, CALL_SECONDS=0.0)
    with alone, worth:
        return stitch_capture(capture(function, args, devices.get("cpu")), devices.get(device))


def arguments(number: str) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    s, n, xs = (random.standard_normal(dims).astype(np.float32) for dims in (N, N, STEPS))
    return s, (n * 5).astype(number), xs


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("number", ["float32", "int32"])
@pytest.mark.parametrize("step", [one_place, two_places, at_data, several])
def test_the_last_value_is_read(step: Step, number: str, device: str) -> None:
    """A carried value written over by its next one while a later phase still read it: only what is stored was asked
    what it reads, and not what its own phase alone goes on with.
    """

    def run(s: Any, n: Any, xs: Any) -> Any:
        return jax.lax.scan(step, (s, n), xs)

    args = arguments(number)
    stitched = made(run, args, device)
    assert any(p.team is not None for k in stitched.kernels for p in k.scheduled.parts), str(stitched.plan)
    wanted = jax.tree.leaves(jax.jit(run)(*args))
    for got, want in zip(forced.run(stitched, args), wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-6)
