"""Sweeps split where the answers of their choices change: every place is done once, and the main piece asks nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from pytest import MonkeyPatch

from jax_stitch.kernel import expressions, index_sets
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.index_sets import split_index_sets
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.walk import nodes
from jax_stitch.loops.teams import team_choice
from tests.loops.agreement import assert_equals_xla, loops_of

RUNS, LANES = 7, 12
SWEEP = """
kernel name=k {{
  inputs {{
    buffer name=in0 dtype=f32 dims=[7, 12]
  }}
  outputs {{
    buffer name=out0 dtype=f32 dims=[7, 12]
  }}
  parts {{
    part name=part_0 wide=false {{
      shape {{
        team_shape rows=1 threads={threads} spread=false
      }}
      parameters {{
        parameter name=a dtype=f32 size=84 written=false
        parameter name=c dtype=f32 size=84 written=true
      }}
      body {{
        items run=serial(run, 7) lane=lane(j, 12){divided} {{
          body {{
            var x: f32
            choice {{
{cases}
            }}
            c[j + run * 12] = x
          }}
        }}
      }}
    }}
  }}
  phases {{
    phase {{
      call part=0 first=0 last=1 arguments=[in0, out0]
    }}
  }}
  launch {{
    launch blocks=1 threads=1 shared_bytes=64 cluster=1 together=none resident=false last_block_from=1
  }}
}}
"""


def sweep(*tests: str, threads: int = 1, divided: str = "") -> Kernel:
    """Return a sweep that adds another number in each case."""
    cases = [
        f"if {test} {{\nlet v{k}: f32 = a[j + run * 12]\nx = add(v{k}, {k + 1}.0:f32)\n}}"
        for k, test in enumerate(tests)
    ]
    cases.append("else {\nx = a[j + run * 12]\n}")
    return parse(SWEEP.format(threads=threads, divided=divided, cases="\n".join(cases)))


def sweeps(kernel: Kernel) -> list[st.Items]:
    return [n for n in nodes(kernel) if isinstance(n, st.Items)]


def asked(kernel: Kernel | st.Items) -> int:
    return sum(isinstance(n, expressions.Test) for n in nodes(kernel))


def test_the_inside_of_a_stencil_asks_nothing() -> None:
    before = sweep("run - 1 in 0..4 and j - 1 in 0..9")
    after = split_index_sets(before)
    assert [(s.run.extent, s.lane.extent) for s in sweeps(after)] == [
        *[(1, 1), (1, 10), (1, 1)],
        *[(5, 1), (5, 10), (5, 1)],
        *[(1, 1), (1, 10), (1, 1)],
    ]
    assert not asked(after)
    assert "let v0: f32 = a[j + run * 12 + 13]" in text(after)
    assert parse(text(after)) == after


RANDOM = np.random.default_rng(0).standard_normal((RUNS, LANES)).astype(np.float32)


def same(before: Kernel, after: Kernel) -> None:
    (got,), (want,) = interpret(after, [RANDOM]), interpret(before, [RANDOM])
    np.testing.assert_array_equal(got, want)


CASES = {
    "an edge": ["j in ..0"],
    "the other way": ["-j + 11 in ..2"],
    "both ways": ["-run + 6 in 2..4", "j in 3..5"],
    "beyond both ends": ["j + 5 in 0..40"],
    "never": ["j in 20..30"],
    "several": ["j in ..2", "j in 3..7 and run in 2..", "run in ..4"],
    "both variables": ["run * 12 + j in 5..50", "j in 4..6"],
    "steps": ["j in 2..9 step 2", "run in ..1"],
}


@pytest.mark.parametrize("name", CASES)
def test_every_place_is_done_once_and_alike(name: str) -> None:
    before = sweep(*CASES[name])
    after = split_index_sets(before)
    same(before, after)
    assert min(map(asked, sweeps(after))) < asked(before)


def test_random_choices() -> None:
    rng, values = Random(0), ["j", "run", "-j + 9", "-run + 5", "j + 3"]
    for _ in range(40):
        some = [rng.choice(values) for _ in range(rng.randrange(1, 5))]
        tests = [f"{value} in {rng.randrange(-2, 6)}..{rng.randrange(0, 13)}" for value in some]
        before = sweep(*tests)
        same(before, split_index_sets(before))


def test_helpers_share_the_largest_piece() -> None:
    after = split_index_sets(sweep("j in 1..10", divided=" divided=true"))
    assert [s.lane.extent for s in sweeps(after) if s.divided] == [10]


def test_many_pieces_become_a_frame_around_the_largest(monkeypatch: MonkeyPatch) -> None:
    """Each piece has a copy of the statements, so their number is bounded."""
    before = sweep("j in ..0", "j in 1..1", "j in 10..10", "j in 11..", "run in 0..0", "run in 6..6")
    monkeypatch.setattr(index_sets, "MOST_STATEMENTS", 40)
    after = split_index_sets(before)
    assert len(sweeps(after)) == 5 and not asked(max(sweeps(after), key=lambda s: s.run.extent * s.lane.extent))
    same(before, after)
    monkeypatch.setattr(index_sets, "MOST_STATEMENTS", 4)
    assert split_index_sets(before) == before


def test_several_threads_share_out_the_whole() -> None:
    before = sweep("j in 1..10", threads=4)
    assert split_index_sets(before) == before


def normal(*dims: int) -> Any:
    return jnp.asarray(np.random.default_rng(1).standard_normal(dims), jnp.float32)


def heat(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].add(0.1 * (around - 4 * u[1:-1, 1:-1]))

    return lax.fori_loop(0, 20, step, u)


def rolled(u: Any) -> Any:
    def step(u: Any, _: Any) -> Any:
        return 0.25 * (
            jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 2, 1) + jnp.roll(jnp.roll(u, -3, 1), 1, 0)
        ), None

    return lax.scan(step, u, None, length=12)[0]


def padded(u: Any) -> Any:
    def step(u: Any, _: Any) -> Any:
        p = jnp.pad(u, 1)
        return jnp.tanh(p[:-2, 1:-1] - 0.5 * p[2:, 1:-1] + p[1:-1, :-2]), u[0].sum()

    return lax.scan(step, u, None, length=12)


def waves(u: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        now, before = state
        second = jnp.zeros_like(now).at[1:-1].set(now[2:] - 2 * now[1:-1] + now[:-2])
        return 2 * now - before + 0.1 * second, now

    return lax.fori_loop(0, 25, step, (u, u))[0]


@pytest.mark.parametrize("device", ["haswell", "zen4", "h200"])
@pytest.mark.parametrize("program", [heat, rolled, padded, waves])
def test_time_steps_equal_xla(program: Any, device: str) -> None:
    dims = (40,) if program is waves else (17, 23)
    assert_equals_xla(program, (normal(*dims),), device)


def test_a_stencil_is_one_kernel() -> None:
    """It was left to XLA, whose slices are copies, element by element."""
    plan, count = loops_of(heat, (normal(64, 64),), "haswell")
    assert count == len(plan.kernels) == plan.launches == 1


def test_rolls_that_are_summed_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the steps of a reduction nothing is split: each would ask where it is."""
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)

    def energy(u: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            return jnp.roll(u, 1, 0) * 0.99, jnp.sum((jnp.roll(u, 1, 1) - u) ** 2, 1)

        return lax.scan(step, u, None, length=30)

    plan, _ = loops_of(energy, (normal(40, 64),), "haswell")
    (source,) = (k.source for k in plan.kernels)
    steps = source.split("ST_STEPS")[1:] + source.split("ST_SPLIT_STEPS")[1:]
    assert steps and not any("if (" in s.split("}")[0] for s in steps)
