"""Loops that threads leave early: where they are left, others may still be on their way there."""

from __future__ import annotations

from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.verify import verify

GUARDED = """
kernel name=k {
  inputs {
    buffer name=in0 dtype=f32 dims=[256]
  }
  outputs {
    buffer name=out0 dtype=f32 dims=[64]
  }
  parts {
    part name=part_0 wide=false {
      shape {
        team_shape rows=1 threads=64 spread=false
      }
      parameters {
        parameter name=a dtype=f32 size=256 written=false
        parameter name=c dtype=f32 size=64 written=true
      }
      before {
        allocate name=go dtype=pred space=team size=1
        allocate name=x dtype=f32 space=team size=64 offset=64
      }
      body {
        items run=serial(run, 1) lane=lane(j, 64) {
          body {
            x[j] = a[j]
          }
        }
        barrier
        for variable=step start=0 stops=[4] by=1 {
            items run=serial(run, 1) lane=lane(j, 1) {
              body {
                let test: pred = compare:pred(a[step * 64], 0.0:f32, direction=LT)
                go[0] = test
              }
            }
            barrier
            for variable=turn start=0 stops=[1] by=1 {
                leave_unless condition=go[0]
INSIDE
                items run=serial(run, 1) lane=lane(j, 64) {
                  body {
                    x[j] = a[step * 64 + j]
                  }
                }
            }
AFTER
        }
        items run=serial(run, 1) lane=lane(j, 64) {
          body {
            c[j] = x[j]
          }
        }
      }
    }
  }
  phases {
    phase {
      call part=0 first=0 last=1 arguments=[in0, out0]
    }
  }
  launch {
    launch blocks=1 threads=64 shared_bytes=512 cluster=1 together=none resident=false last_block_from=1
  }
}
"""


def guarded(inside: str = "", after: str = "barrier") -> Kernel:
    return parse(GUARDED.replace("INSIDE", inside).replace("AFTER", after))


def test_all_have_tested_before_the_next_iteration_writes() -> None:
    assert not verify(guarded())


def test_a_thread_that_left_may_still_be_testing() -> None:
    """Catches that only threads which stay in a loop are thought to come out of it: inside they have met."""
    (finding,) = verify(guarded(inside="barrier", after=""))
    assert "go is written where another thread may still read" in str(finding)


def test_without_any_barrier() -> None:
    assert verify(guarded(after=""))
