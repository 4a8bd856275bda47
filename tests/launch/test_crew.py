"""The threads of our own that help with kernels on a CPU, and which programs they help."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import hlo_parser
from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import toolchain
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.replay import LaunchedGraph, leaves_pooled_work
from jax_stitch.graph import build
from jax_stitch.loops.teams import team_choice

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "jax_stitch" / "backend" / "launch"


@pytest.mark.parametrize("sanitizer", [(), ("-fsanitize=thread",)], ids=["plain", "races"])
def test_each_task_is_done_once(sanitizer: tuple[str, ...], tmp_path: Path) -> None:
    """Catches: a task that two callers give one thread; one that is lost as the thread falls asleep; a thread that
    rounds otherwise than the caller; a forked process that waits for its parent's threads.
    """
    program = tmp_path / "crew"
    command = [
        *toolchain.compiler(),
        "-std=c++17",
        "-O1",
        "-pthread",
        *sanitizer,
        f"-I{HEADERS}",
        str(HERE / "crew.cc"),
    ]
    made = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, timeout=120)
    if sanitizer and made.returncode:
        pytest.skip("this compiler has no thread sanitizer")
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([program, *sanitizer], capture_output=True, text=True, timeout=120)
    if sanitizer and "unexpected memory mapping" in ran.stderr:
        pytest.skip("the thread sanitizer does not run here")
    assert ran.returncode == 0, ran.stderr
    given, done, wrong, *forked = map(int, ran.stdout.split())
    assert given == done > 1000 and wrong == 0 and not any(forked)


def pooled(function: object, *args: jax.Array) -> set[str]:
    """What the calls of a stitched function say of who helps."""
    text = stitch_jit(function, mode="now").lower(*args).as_text()
    return {line.split("pooled = ")[1][0] for line in text.splitlines() if "pooled = " in line}


def test_who_helps_is_decided_by_what_is_left_to_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits busily after each kernel took a core from XLA's products: a decoder's step took a quarter
    longer. Where XLA has nothing for its pool, the pool's thread slept through half of the kernels.
    """
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)
    x, w = jnp.ones((256, 512)), jnp.ones((512, 2048))

    def alone(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, s: (jnp.tanh(h * s + h.mean(-1, keepdims=True)), None), x, jnp.ones(50))[0]

    def beside(x: jax.Array, w: jax.Array) -> jax.Array:
        return alone(x) @ w

    assert pooled(alone, x) == {"0"}
    assert pooled(beside, x, w) == {"1"}


@pytest.mark.parametrize(("size", "is_pooled"), [(512, True), (64, False)])
def test_a_large_operation_in_a_loops_body_counts(size: int, is_pooled: bool) -> None:
    def function(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 4, lambda _, h: jnp.sin(h @ x), x)

    text = capture(function, [jnp.ones((size, size))], devices.get("cpu")).text
    assert leaves_pooled_work(LaunchedGraph(build(hlo_parser.parse(text)))) is is_pooled


@pytest.mark.parametrize(("size", "is_pooled"), [(1 << 18, True), (1 << 14, False)])
def test_of_what_is_no_product_bytes_count(size: int, is_pooled: bool) -> None:
    text = capture(lambda x: jnp.sin(x) + 1.0, [jnp.ones(size)], devices.get("cpu")).text
    assert leaves_pooled_work(LaunchedGraph(build(hlo_parser.parse(text)))) is is_pooled
