"""How a child process begins: ``python -P start.py MODULE``. It needs Python's library alone.

To import JAX takes seconds, and minutes at the lowest priority on a busy machine. A child whose parent is gone by then
would go on for as long: so it is watched for from the very start. And nothing is looked for meanwhile that could be
freed: that took a fifth of the time.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import sys
import threading
import time

_GRACE = 2.0
"""Seconds that it has to end by itself once its parent is gone."""


def _end_with_parent() -> None:
    """End this process, and what it has started, where its parent is gone and it has not noticed: it may be at work for
    minutes."""
    poll = select.poll()
    poll.register(0, 0)  # the standard input, a pipe
    poll.poll()  # until nobody can write to it any more
    time.sleep(_GRACE)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, name="jax-stitch-parent", daemon=True).start()
    del sys.argv[0]
    gc.disable()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
