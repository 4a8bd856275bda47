"""Programs in processes of their own: what they need first, and running them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PRELUDE = """
import multiprocessing, os, sys, warnings
import jax, jax.numpy as jnp, numpy as np
from jax_stitch import stitch_jit
from jax_stitch.backend.compile import host
from jax_stitch.jit.programs.fallback import StitchWarning
warnings.filterwarnings("ignore", "os.fork")
host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # It is quicker.
def softmax(x):
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)
def check(call):
    x = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(call(x), e / e.sum(-1, keepdims=True), rtol=1e-5)
def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
"""


def run(program: str, seconds: float = 60, **environment: str) -> str:
    """Runs a program after the prelude in a process of its own, which must end in time, and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
